// Follows runs as they go on. Of all open tabs one (the holder of a lock) keeps a single stream open and passes what
// it hears to the others; hidden tabs follow nothing. Every tab keeps its own place, a byte offset in the run's files:
// what it had is dropped, what it missed is fetched, so nothing is lost or doubled by refresh, restart or sleep.

import { api } from "./base.js";
import { query } from "./dom.js";

const LOCK = "factory-live";
const BACKOFF = [300, 700, 1500, 3000, 5000];
const SILENCE = 40000; // the server says something at least every 15 s
const POLL = 1500;
const FORGET = 15000; // a tab that has not spoken for so long is gone
const MOST = 20; // runs in one stream
const FETCHED = 256 << 10; // bytes of log that are fetched when a piece is missing

class Live {
  constructor() {
    this.tab = Math.random().toString(36).slice(2);
    this.wants = new Map(); // run id -> {cursor, log, handlers, chain}
    this.list = null; // hears the rows of the list
    this.machine = new Set();
    this.others = new Map(); // tab -> {wants, list, seen}, kept by the leader
    this.streams = {}; // kept by the leader: `runs` and `list`, each {source, asked, heard, failures}
    this.listeners = new Set();
    this.status = "starting";
    this.shared = Boolean(window.isSecureContext && navigator.locks && window.BroadcastChannel && window.EventSource);
  }

  /** Follows a run from byte `cursor` of its events and `log` of its log: {events(list), log(page), state(row), gone()}. */
  follow(id, { cursor, log = null }, handlers) {
    const want = { cursor, log, handlers, chain: Promise.resolve() };
    this.wants.set(id, want);
    this.begin();
    return want;
  }

  /** Follows the list of runs: the handler gets {runs: changed rows, gone: ids}. */
  followList(handler) {
    this.list = handler;
    this.begin();
  }

  /** Hears how busy the machine is, while a run is followed. */
  onMachine(handler) {
    this.machine.add(handler);
  }

  /** Hears `live`, `reconnecting`, `polling` or `paused`. */
  onStatus(handler) {
    this.listeners.add(handler);
    handler(this.status);
  }

  begin() {
    if (this.begun) {
      if (this.active && this.shared) this.changed();
      return;
    }
    this.begun = true;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.resume()));
    window.addEventListener("pagehide", () => this.pause());
    window.addEventListener("pageshow", (event) => event.persisted && this.resume());
    window.addEventListener("online", () => this.leading && this.reopenSoon(true));
    setInterval(() => this.tick(), 4000);
    if (this.shared) {
      this.channel = new BroadcastChannel(LOCK);
      this.channel.onmessage = ({ data }) => this.heard(data);
    }
    if (!document.hidden) this.resume();
  }

  resume() {
    if (this.active) return;
    this.active = true;
    if (!this.shared) {
      this.poll();
      return;
    }
    this.announce();
    this.candidate = new AbortController();
    navigator.locks.request(LOCK, { signal: this.candidate.signal }, () => this.lead()).catch(() => {});
  }

  pause() {
    if (!this.active) return;
    this.active = false;
    this.candidate?.abort();
    this.release?.();
    this.channel?.postMessage({ kind: "bye", tab: this.tab });
    clearTimeout(this.timer);
    this.say("paused");
  }

  changed() {
    if (this.leading) this.reopenSoon();
    else this.announce();
  }

  mine() {
    return { wants: [...this.wants].map(([id, want]) => [id, want.cursor, want.log]), list: Boolean(this.list) };
  }

  announce() {
    this.channel.postMessage({ kind: "wants", tab: this.tab, ...this.mine() });
  }

  tick() {
    if (!this.active || !this.shared) return;
    if (!this.leading) {
      this.announce();
      return;
    }
    for (const [tab, other] of this.others) if (Date.now() - other.seen > FORGET && this.others.delete(tab)) this.reopenSoon();
    for (const [name, stream] of Object.entries(this.streams)) if (stream.source && Date.now() - stream.heard > SILENCE) this.lost(name);
  }

  // ------------------------------------------------------------------ leading

  /** Runs while this tab holds the lock. */
  lead() {
    if (!this.active) return undefined; // hidden again while it waited
    this.leading = true;
    this.others.clear();
    this.channel.postMessage({ kind: "who" });
    this.reopenSoon();
    return new Promise((done) => {
      this.release = () => {
        this.leading = false;
        this.release = null;
        for (const name of Object.keys(this.streams)) this.close(name);
        done();
      };
    });
  }

  reopenSoon(anew = false) {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.leading && this.openAll(anew), 60);
  }

  openAll(anew) {
    const all = [this.mine(), ...this.others.values()];
    const cursors = new Map();
    for (const [id, events, log] of all.flatMap((one) => one.wants)) {
      const known = cursors.get(id);
      cursors.set(id, known ? [Math.min(known[0], events), Math.min(known[1] ?? log, log ?? known[1])] : [events, log]);
    }
    const ids = [...cursors.keys()].sort().slice(0, MOST);
    this.open("runs", ids.join(), anew, ids.length > 0, () => {
      this.reached = new Map(ids.map((id) => [id, cursors.get(id)[0]]));
      const asked = ids.map((id) => [id, ...cursors.get(id).filter((at) => at !== null)].join(":"));
      return `/api/stream${query({ ids: asked.join(",") })}`;
    });
    this.open("list", "list", anew, all.some((one) => one.list), () => "/api/stream");
    if (!Object.values(this.streams).some((one) => one.source)) this.tell({ kind: "status", status: "live" }); // nothing to wait for
  }

  open(name, asked, anew, wanted, address) {
    const old = this.streams[name];
    if (!wanted) return this.close(name);
    if (!anew && old?.source && old.asked === asked) return undefined;
    this.close(name);
    const source = new EventSource(address());
    const stream = { source, asked, heard: Date.now(), failures: old?.failures ?? 0 };
    this.streams[name] = stream;
    source.onopen = () => {
      stream.failures = 0;
      stream.heard = Date.now();
      this.tell({ kind: "status", status: "live" });
    };
    source.onerror = () => source === this.streams[name]?.source && this.lost(name);
    for (const type of ["events", "log", "state", "machine", "gone", "runs", "alive"])
      source.addEventListener(type, (event) => {
        stream.heard = Date.now();
        stream.failures = 0;
        if (type !== "alive") this.tell({ kind: "message", type, data: this.placed(type, JSON.parse(event.data)) });
      });
    return undefined;
  }

  /** A batch of events with the byte it begins at: every tab then knows whether it misses something. */
  placed(type, data) {
    if (type !== "events") return data;
    const from = this.reached.get(data.run) ?? 0;
    this.reached.set(data.run, data.next);
    return { ...data, from };
  }

  close(name) {
    const stream = this.streams[name];
    if (!stream) return;
    stream.source?.close();
    stream.source = null;
    clearTimeout(stream.again);
  }

  /** A stream broke: quietly try again, a little later each time; ask by plain requests when only streams fail. */
  lost(name) {
    const stream = this.streams[name];
    this.close(name);
    stream.failures += 1;
    this.tell({ kind: "status", status: "reconnecting" });
    if (stream.failures > 1) this.tell({ kind: "ask" });
    stream.again = setTimeout(() => this.leading && this.openAll(false), BACKOFF[Math.min(stream.failures, BACKOFF.length) - 1]);
  }

  tell(message) {
    this.channel.postMessage(message);
    this.heard(message);
  }

  // ------------------------------------------------------------------ hearing

  heard(message) {
    if (message.kind === "bye" && this.leading && this.others.delete(message.tab)) this.reopenSoon();
    else if (message.kind === "wants" && this.leading) this.noteOther(message);
    if (!this.active) return;
    if (message.kind === "status") this.say(message.status);
    else if (message.kind === "message") this.take(message.type, message.data);
    else if (message.kind === "who") this.announce();
    else if (message.kind === "ask" && (message.tab ?? this.tab) === this.tab) this.catchUp();
  }

  noteOther({ tab, wants, list }) {
    const before = this.others.get(tab);
    const asks = (one) => `${one.wants.map(([id]) => id).join()}|${one.list}`;
    this.others.set(tab, { wants, list, seen: Date.now() });
    if (before && asks(before) === asks({ wants, list })) return;
    if (wants.length) this.channel.postMessage({ kind: "ask", tab }); // the stream may be past what it has
    this.reopenSoon(list && !before?.list); // a new list begins with all rows
    if (this.status === "live") this.channel.postMessage({ kind: "status", status: "live" });
  }

  say(status) {
    if (status === this.status) return;
    this.status = status;
    for (const listener of this.listeners) listener(status);
  }

  take(type, data) {
    if (type === "machine") return this.machine.forEach((handler) => handler(data));
    if (type === "runs") return this.list?.(data);
    const want = this.wants.get(data.run);
    if (!want) return undefined;
    const work = {
      events: () => this.takeEvents(data.run, want, data),
      log: () => this.takeLog(data.run, want, data),
      state: () => want.handlers.state?.(data.row),
      gone: () => this.gone(data.run, want),
    }[type];
    this.queue(want, work).catch(() => setTimeout(() => this.catchUp(), BACKOFF[3])); // what it asked for did not come
    return undefined;
  }

  /** A run that was deleted is followed no longer, or its streams would fail for ever. */
  gone(id, want) {
    if (!this.wants.delete(id)) return;
    want.handlers.gone?.();
    if (this.active && this.shared) this.changed();
  }

  /** One thing after another for a run; a failure fails its own caller, not what comes behind it. */
  queue(want, work) {
    const done = want.chain.then(work);
    want.chain = done.catch(() => {});
    return done;
  }

  async takeEvents(id, want, batch) {
    if (batch.from > want.cursor) await this.fetchEvents(id, want);
    const fresh = batch.events.filter((event) => event.end > want.cursor);
    want.cursor = Math.max(want.cursor, batch.next);
    if (fresh.length) want.handlers.events(fresh);
  }

  async takeLog(id, want, page) {
    if (want.log === null || page.to <= want.log) return undefined;
    if (page.from < want.log || (page.from > want.log && page.from - want.log <= FETCHED)) return this.fetchLog(id, want);
    want.log = page.to; // a flood leaves holes: the view begins anew and pages back when somebody wants to see them
    return want.handlers.log?.(page);
  }

  // ------------------------------------------------------------------ asking

  async fetchEvents(id, want) {
    for (let more = true; more; ) {
      const answer = await api(`/runs/${id}/events${query({ after: want.cursor })}`);
      more = answer.next > want.cursor;
      want.cursor = Math.max(want.cursor, answer.next);
      if (answer.events.length) want.handlers.events(answer.events);
    }
  }

  async fetchLog(id, want) {
    for (let more = want.log !== null; more; ) {
      const page = await api(`/runs/${id}/log${query({ after: want.log })}`);
      more = page.to > want.log;
      if (more) {
        want.log = page.to;
        want.handlers.log?.(page);
      }
    }
  }

  /** Whatever is new of everything this tab follows, by plain requests. Rejects when the server does not answer. */
  async ask() {
    const work = [...this.wants].map(([id, want]) => this.queue(want, async () => {
      try {
        await this.fetchEvents(id, want);
        await this.fetchLog(id, want);
        want.handlers.state?.(await api(`/runs/${id}`));
      } catch (reason) {
        if (reason.code !== "run_not_found") throw reason;
        this.gone(id, want);
      }
    }));
    if (this.list) work.push(api("/runs").then((told) => this.list({ ...told, whole: true })));
    if (this.machine.size) work.push(api("/machine").then((told) => this.machine.forEach((handler) => handler(told.load))));
    await Promise.all(work);
  }

  catchUp() {
    this.ask().catch(() => {}); // the server is away altogether: the next try of the stream will tell
  }

  /** Without a lock to share a stream (http on another host) or without streams at all. */
  async poll() {
    if (!this.active) return;
    await this.ask().then(() => this.say("polling"), () => this.say("reconnecting"));
    this.timer = setTimeout(() => this.poll(), POLL);
  }
}

export const live = new Live();
