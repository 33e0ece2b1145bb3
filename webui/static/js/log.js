// A log of any length in a few hundred nodes: only the lines in sight are elements. It begins with the newest lines
// and pages back by byte range; `/` searches, Esc stops following.

import { api, bytes, el, later, number, t } from "./base.js";
import { eachFrame, fill, put, query, sign } from "./dom.js";

const LINE = 19; // pixels, as in the style sheet
const TALL = 380; // pixels of the window
const SPARE = 12; // lines drawn beyond each edge
const LONGEST = 4000; // characters of one line that are drawn
const PAGE = 256 << 10;
const HELD = 30000; // lines that stay while following; older ones are fetched again when somebody scrolls up

const LEVELS = [
  ["err", /\b(error|exception|traceback|fatal|failed|critical)\b/i],
  ["warn", /\bwarn(ing)?\b/i],
  ["good", /\b(saved|succeeded|checkpoint-\d+)\b/i],
];

export class LogView {
  constructor(id) {
    this.id = id;
    this.lines = [];
    this.pages = []; // {from: byte of its first line, count: lines}
    this.to = 0; // byte behind the last line
    this.following = true;
    this.found = [];
    this.draw = eachFrame(() => this.render());
    this.build();
  }

  build() {
    this.status = el("span.sub", { role: "status", "data-testid": "log-status" });
    this.tall = el("div.log-tall");
    this.layer = el("div.log-lines");
    this.box = el("div.log", { role: "log", "aria-live": "off", "aria-label": t("log.title"), tabindex: "0", "data-testid": "log" }, this.tall, this.layer);
    this.followButton = el("button.btn.small", { type: "button", "aria-pressed": "true", onclick: () => this.follow(!this.following) }, t("log.follow"));
    this.search = el("input.find", { type: "search", placeholder: t("log.search"), "aria-label": t("log.search_label"), "data-testid": "log-search" });
    this.hits = el("span.sub.hits", { role: "status" });
    this.empty = el("p.empty", {}, t("log.empty"));
    this.element = el("section.card.log-card", { "aria-label": t("log.title") },
      el("div.card-head", {}, el("h2", {}, t("log.title")), this.status),
      el("div.log-tools", {}, el("span.find-box", {}, sign("search"), this.search), this.hits, this.followButton,
        el("a.btn.small", { href: `/api/runs/${this.id}/files/log`, download: true }, sign("down"), t("log.download"))),
      this.box, this.empty);
    this.box.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.search.addEventListener("input", later(() => this.find(0), 120));
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.clearSearch();
    });
    new ResizeObserver(this.draw).observe(this.box);
  }

  /** The newest lines; afterwards `to` is where a stream goes on from. */
  async load() {
    const page = await api(`/runs/${this.id}/log?tail=2000`);
    this.begin(page);
  }

  begin(page) {
    this.lines = page.lines.map(shown);
    this.pages = [{ from: page.from, count: page.lines.length }];
    this.to = page.to;
    this.tell();
    this.draw();
  }

  /** The byte where the first line begins. */
  get from() {
    return this.pages[0]?.from ?? 0;
  }

  /** New lines at the end; after a hole the view begins anew. */
  add(page) {
    if (page.from !== this.to) return this.begin(page);
    for (const line of page.lines) this.lines.push(shown(line));
    this.pages.push({ from: page.from, count: page.lines.length });
    this.to = page.to;
    if (this.following && this.lines.length > 2 * HELD) this.drop();
    if (this.search.value) this.findSoon ??= setTimeout(() => { this.findSoon = null; this.find(null); }, 300);
    this.tell();
    return this.draw();
  }

  drop() {
    let away = 0;
    while (this.pages.length > 1 && this.lines.length - away - this.pages[0].count >= HELD) away += this.pages.shift().count;
    this.lines.splice(0, away);
  }

  /** The lines before the first; false when there are none. Whoever asks while some are on their way waits for those. */
  earlier(size = PAGE) {
    if (this.from <= 0) return Promise.resolve(false);
    return (this.loading ??= this.fetchEarlier(size));
  }

  async fetchEarlier(size) {
    await null; // so that `loading` is set before anything is told
    this.tell();
    try {
      const before = this.from;
      const page = await api(`/runs/${this.id}/log${query({ before, bytes: size })}`);
      if (this.from !== before) return true; // a flood began the view anew meanwhile: these lines are not those before it
      if (page.from >= before) return false;
      this.lines = page.lines.map(shown).concat(this.lines);
      this.pages.unshift({ from: page.from, count: page.lines.length });
      const away = this.box.scrollTop + page.lines.length * LINE;
      this.tall.style.height = `${this.lines.length * LINE}px`;
      this.box.scrollTop = this.lastTop = away;
      return true;
    } finally {
      this.loading = null;
      this.tell();
      this.draw();
    }
  }

  tell() {
    const parts = [];
    if (this.loading) parts.push(t("log.loading"));
    else if (this.following) parts.push(t("log.following"));
    parts.push(this.from > 0 ? t("log.last_lines", { n: this.lines.length, lines: number(this.lines.length), before: bytes(this.from) }) : t("log.lines", { n: this.lines.length, lines: number(this.lines.length) }));
    if (this.following && !this.loading) parts.push(t("log.esc"));
    put(this.status, parts.join(" · "));
    const none = !this.lines.length;
    this.box.hidden = none;
    this.empty.hidden = !none;
  }

  render() {
    const count = this.lines.length;
    this.tall.style.height = `${count * LINE}px`;
    this.box.style.height = `${Math.min(TALL, Math.max(4, count + 1) * LINE)}px`;
    if (this.following) {
      this.box.scrollTop = this.box.scrollHeight;
      this.lastTop = this.box.scrollTop; // the event of our own scrolling comes later, and says nothing about a reader
    }
    const first = Math.max(0, Math.floor(this.box.scrollTop / LINE) - SPARE);
    const last = Math.min(count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / LINE) + SPARE);
    const made = [];
    for (let at = first; at < last; at += 1) made.push(this.line(at));
    this.layer.style.transform = `translateY(${first * LINE}px)`;
    fill(this.layer, made);
  }

  line(at) {
    const text = this.lines[at];
    const level = LEVELS.find(([, pattern]) => pattern.test(text));
    const made = el(level ? `div.line.${level[0]}` : "div.line");
    const wanted = this.search.value;
    const parts = wanted ? split(text, wanted) : [[text, false]];
    for (const [part, hit] of parts) made.append(hit ? el("mark", {}, part) : part);
    if (at === this.found[this.at]) made.classList.add("current");
    return made;
  }

  scrolled() {
    const end = this.box.scrollHeight - this.box.clientHeight - this.box.scrollTop < LINE * 1.5;
    if (this.following && !end && this.box.scrollTop < this.lastTop) this.follow(false);
    else if (!this.following && end && this.box.scrollTop > this.lastTop) this.follow(true);
    this.lastTop = this.box.scrollTop;
    if (this.box.scrollTop < LINE * 40 && this.from > 0 && !this.following) this.earlier().catch(() => {}); // the next scroll asks again
    this.draw();
  }

  follow(on) {
    this.following = on;
    this.followButton.setAttribute("aria-pressed", String(on));
    this.tell();
    this.draw();
  }

  key(event) {
    if (event.key === "Escape") this.follow(false);
    else if (event.key === "End") this.follow(true);
    else if (event.key === "Home") {
      this.follow(false);
      this.box.scrollTop = 0;
    } else return;
    event.preventDefault();
  }

  // ------------------------------------------------------------------ search

  focusSearch() {
    this.search.focus();
    this.search.select();
  }

  clearSearch() {
    this.search.value = "";
    this.find(0);
    this.box.focus();
  }

  /** Finds all lines that hold the text; `from` says from where to show the first, null leaves the view alone. */
  find(from) {
    const wanted = this.search.value.toLowerCase();
    this.found = [];
    if (wanted) this.lines.forEach((line, at) => line.toLowerCase().includes(wanted) && this.found.push(at));
    if (from !== null) {
      this.at = this.found.length - 1;
      if (this.found.length) this.show(this.found[this.at]);
    }
    this.tellHits();
    this.draw();
  }

  step(by) {
    if (!this.found.length) return;
    this.at = (this.at + by + this.found.length) % this.found.length;
    this.show(this.found[this.at]);
    this.tellHits();
    this.draw();
  }

  show(line) {
    this.follow(false);
    this.box.scrollTop = Math.max(0, line * LINE - this.box.clientHeight / 2);
  }

  tellHits() {
    if (!this.search.value) return fill(this.hits);
    const words = this.found.length ? t("log.hits", { at: number(this.at + 1), n: number(this.found.length) }) : t("log.no_hits");
    const all = this.from > 0 && el("button.linklike", { type: "button", onclick: () => this.findEverywhere() }, t("log.search_all"));
    return fill(this.hits, words, all ? " " : null, all);
  }

  /** Loads the whole log, a megabyte at a time, so that the search covers it. */
  async findEverywhere() {
    const wanted = this.search.value;
    while (this.search.value === wanted && (await this.earlier(1 << 20)));
    this.find(0);
  }
}

/** What stays of a line that overwrote itself (a progress bar), cut to a length that can be drawn. */
function shown(line) {
  const last = line.lastIndexOf("\r");
  const text = last >= 0 && last < line.length - 1 ? line.slice(last + 1) : line;
  return text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text;
}

function* split(text, wanted) {
  const low = text.toLowerCase();
  const word = wanted.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(word); at >= 0 && low.length === text.length; at = low.indexOf(word, from)) {
    yield [text.slice(from, at), false];
    yield [text.slice(at, at + word.length), true];
    from = at + word.length;
  }
  yield [text.slice(from), false];
}
