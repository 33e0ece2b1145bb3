// One run, live. This file loads it and passes on what happens; each part of the page is a file in run/.
import { api, el, t, toast } from "./base.js";
import { typing } from "./dom.js";
import { live } from "./live.js";
import { LogView } from "./log.js";
import { Series } from "./metrics.js";
import { Cards } from "./run/cards.js";
import { Charts } from "./run/charts.js";
import { ExportsCard } from "./run/exports.js";
import { Head } from "./run/head.js";
import { Progress } from "./run/progress.js";
import { Samples } from "./run/samples.js";
import { Side } from "./run/side.js";
import { ENDED } from "./words.js";

const QUIET = "metric"; // kinds that the numbers already tell

/** Fill the page. */
export async function start(root) {
  const id = new URLSearchParams(location.search).get("id");
  if (!id) return nothing(root, t("run.none"), t("run.none_text"));
  try {
    const [detail, features] = await Promise.all([api(`/runs/${encodeURIComponent(id)}`), api("/features").catch(() => ({}))]);
    return await new RunPage(root, detail, features).begin();
  } catch (reason) {
    return nothing(root, t("run.missing"), reason.message);
  }
}

function nothing(root, title, text) {
  root.querySelector(".body").replaceChildren(el("section.card.empty", {}, el("h2", {}, title), el("p.sub", {}, text),
    el("p.actions", {}, el("a.btn", { href: "/" }, t("run.to_runs")), el("a.btn.primary", { href: "/new" }, t("nav.new")))));
}

class RunPage {
  constructor(root, detail, features) {
    this.root = root;
    this.id = detail.id;
    this.detail = detail;
    this.features = features;
    this.series = new Series();
    this.events = [];
    this.samples = [];
    this.start = null; // the start event of the newest attempt
    this.phase = null;
    this.parts = { head: new Head(this), cards: new Cards(this), progress: new Progress(this), charts: new Charts(this), samples: new Samples(this), side: new Side(this), exports: new ExportsCard(this) };
    this.log = new LogView(this.id);
  }

  async begin() {
    const { cards, progress, charts, samples, side, exports } = this.parts;
    this.body = this.root.querySelector(".body");
    this.left = el("div.run-left", {}, charts.element, samples.element, this.log.element);
    this.body.replaceChildren(cards.element, progress.element, progress.tiles,
      el("div.run-main", {}, this.left, side.element));
    side.element.prepend(exports.element);
    this.draw();
    const path = `/runs/${this.id}`;
    const [metrics, , past] = await Promise.all([api(`${path}/metrics?points=2000`), this.log.load(), this.past()]);
    this.series.load(metrics.series);
    this.draw();
    // From where both have got to: what one of them has had already, it knows again.
    live.follow(this.id, { cursor: Math.min(metrics.next, past), log: this.log.to }, {
      events: (events) => this.hear(events),
      log: (page) => this.log.add(page),
      state: (row) => this.state(row),
      gone: () => nothing(this.root, t("run.deleted"), t("run.deleted_text", { id: this.id })),
    });
    live.onMachine((load) => side.machine(load));
    live.onStatus((status) => this.parts.head.connection(status));
    setInterval(() => document.hidden || this.parts.progress.tick(), 1000);
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /** What happened before this page was opened, and the byte it was read to; numbers come thinned by another way. */
  async past() {
    let after = 0;
    for (let more = true; more; ) {
      const answer = await api(`/runs/${this.id}/events?after=${after}&skip=${QUIET}`);
      answer.events.forEach((event) => this.note(event));
      more = answer.next > after;
      after = answer.next;
    }
    return after;
  }

  /** Takes in an event; metrics only when they are new. */
  note(event) {
    if (event.event === "metric") {
      this.series.add(event.step, event.values);
      this.parts.progress.hear(event);
      return;
    }
    if (this.events.length && event.end <= this.events.at(-1).end) return; // had by both ways
    this.events.push(event);
    if (event.event === "start") this.start = event;
    else if (event.event === "phase") this.phase = event;
    else if (event.event === "sample") this.samples.push(event);
    else if (event.event === "checkpoint" || event.event === "done") this.refreshSoon();
    else if (event.event === "state" && event.state === "starting") this.phase = null;
  }

  hear(events) {
    for (const event of events) this.note(event);
    this.draw();
  }

  /** The row of the run changed: its state, its place in the queue, its words. */
  state(row) {
    const ended = ENDED.has(row.state) && !ENDED.has(this.detail.state);
    Object.assign(this.detail, row);
    if (ended) this.refreshSoon();
    this.draw();
  }

  refreshSoon() {
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.refresh(), 400);
  }

  /** Asks again for what no event tells: checkpoints, sizes, the card. */
  async refresh() {
    try {
      this.detail = await api(`/runs/${this.id}`);
      this.draw();
    } catch (reason) {
      if (reason.status === 404) nothing(this.root, t("run.deleted"), t("run.deleted_text", { id: this.id }));
    }
  }

  draw() {
    document.title = `${this.title} · Factory`;
    for (const part of Object.values(this.parts)) part.draw();
    // While it trains the curves are the news; afterwards it is what the model says now.
    const samples = this.parts.samples.element;
    if (this.detail.state === "succeeded" && this.left.firstElementChild !== samples) this.left.prepend(samples);
  }

  get title() {
    return this.detail.title || this.detail.name || this.id;
  }

  /** Does something to the run and says what came of it; `done` is the sentence for success. */
  async act(path, body, done) {
    try {
      const answer = await api(`/runs/${this.id}${path}`, body);
      if (done) toast(done, "ok");
      await this.refresh();
      return answer;
    } catch (reason) {
      toast(reason.message, "err");
      return null;
    }
  }

  key(event) {
    if (typing(event)) return;
    if (event.key === "/") this.log.focusSearch();
    else if (event.key === "Escape") this.log.follow(false);
    else if (event.key === "n") location.href = "/new";
    else return;
    event.preventDefault();
  }
}
