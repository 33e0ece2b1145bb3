// How far it is, when it ends, and the newest numbers as tiles.
import { duration, el, figure, number, short, t } from "../base.js";
import { fill, put } from "../dom.js";
import { stageOf } from "../metrics.js";
import { clock, ENDED, metricName, percent } from "../words.js";

export class Progress {
  constructor(page) {
    this.page = page;
    this.fill = el("i");
    this.bar = el("div.bar.thick", { role: "progressbar", "aria-label": t("run.progress"), "aria-valuemin": 0, "aria-valuemax": 100 }, this.fill);
    this.facts = el("div.facts", { "data-testid": "progress" });
    this.element = el("section.card.progress", { "aria-label": t("run.progress") }, this.bar, this.facts);
    this.tiles = el("div.tiles");
    this.pace = null; // seconds a step
    this.step = 0;
    this.epoch = null;
  }

  /** A metric as it happens: the pace of the run follows it. */
  hear(metric) {
    const { mono, step } = metric;
    if (this.last && step > this.last.step && mono > this.last.mono) {
      const now = (mono - this.last.mono) / (step - this.last.step);
      this.pace = this.pace ? 0.9 * this.pace + 0.1 * now : now;
    }
    if (!this.last || step !== this.last.step) this.last = { mono, step };
    this.step = step;
    this.epoch = metric.epoch ?? this.epoch;
    this.heardAt = Date.now() / 1000;
  }

  draw() {
    const { detail, series } = this.page;
    this.step = Math.max(detail.step ?? 0, this.step, series.lastStep("loss") ?? 0);
    if (this.attempt !== detail.attempt) {
      this.attempt = detail.attempt;
      this.step = detail.step ?? 0;
      this.last = null;
    }
    this.total = this.page.start?.total_steps ?? detail.total_steps ?? null;
    if (this.pace === null && detail.left_seconds && this.total > this.step) this.pace = detail.left_seconds / (this.total - this.step);
    this.element.hidden = detail.state === "queued" || (!this.step && !ENDED.has(detail.state));
    this.tick();
    this.drawTiles();
  }

  /** Every second: the clock runs on between two steps. */
  tick() {
    const { detail } = this.page;
    if (this.element.hidden) return;
    const over = ENDED.has(detail.state);
    const share = this.total ? this.step / this.total : 0;
    const done = detail.state === "succeeded";
    this.fill.style.width = `${100 * (done ? 1 : share)}%`;
    this.fill.className = { succeeded: "ok", failed: "err", lost: "err", stopped: "warn" }[detail.state] ?? "";
    this.bar.setAttribute("aria-valuenow", Math.floor(100 * share));
    const now = Date.now() / 1000;
    const since = detail.started ?? detail.created;
    const elapsed = over ? detail.duration ?? (detail.ended ?? now) - since : now - since;
    const left = over || !this.pace || !this.total ? null : Math.max(0, this.pace * (this.total - this.step) - (this.heardAt ? now - this.heardAt : 0));
    const epochs = detail.job?.train?.epochs;
    const epoch = this.epoch ?? (this.total && epochs ? share * epochs : null);
    const facts = [
      ["share", "", percent(done ? 1 : share), ""],
      ["step", t("run.step"), number(this.step), this.total ? t("run.of", { all: number(this.total) }) : ""],
      epoch !== null && ["epoch", t("run.epoch"), (Math.floor(epoch * 100) / 100).toFixed(2), epochs && !detail.job.train.max_steps ? t("run.of", { all: number(epochs, 2) }) : ""],
      ["elapsed", t("run.elapsed"), duration(elapsed), ""],
      left !== null && ["left", t("run.left"), this.step >= this.total ? t("run.finishing") : duration(left), ""],
      left !== null && this.step < this.total && ["ends", t("run.ends"), clock(now + left), ""],
      over && detail.ended && ["ended", t("run.ended"), clock(detail.ended), ""],
    ].filter(Boolean);
    if (this.facts.childElementCount !== facts.length) fill(this.facts, facts.map(() => el("span", {}, el("span"), " ", el("b"), " ", el("span"))));
    facts.forEach(([name, label, value, rest], at) => {
      const [first, bold, last] = this.facts.children[at].children;
      this.facts.children[at].dataset.fact = name;
      put(first, label);
      put(bold, value);
      put(last, rest);
    });
  }

  drawTiles() {
    const { detail, series } = this.page;
    const known = new Set(series.names);
    const names = stageOf(detail.stage).tiles.filter((name) => known.has(name));
    this.tiles.hidden = !names.length;
    if (names.join() !== this.names) {
      this.names = names.join();
      fill(this.tiles, names.map((name) => el("div.tile", { "data-tile": name }, el("div.k", {}, metricName(name)), el("div.v"), el("div.d"))));
    }
    names.forEach((name, at) => {
      const [, value, below] = this.tiles.children[at].children;
      const column = series.columns.get(name);
      put(value, this.valueOf(name, column.y.at(-1)));
      const told = this.below(name, column);
      put(below, told.text);
      below.className = `d ${told.look ?? ""}`;
    });
  }

  valueOf(name, value) {
    if (name === "tokens_per_second") return `${number(value)} ${t("run.tokens_s")}`;
    if (name === "tokens") return short(value);
    if (/accuracy|clipped/.test(name)) return `${number(100 * value, 1)} %`;
    return figure(value);
  }

  /** A second line: how it changed, or what it means. */
  below(name, { x, y }) {
    if (name.startsWith("eval_")) {
      const best = name.endsWith("loss") ? Math.min(...y) : Math.max(...y);
      return y.at(-1) === best ? { text: t("tile.best_at", { step: number(x.at(-1)) }), look: "good" } : { text: t("tile.best_was", { value: figure(best), step: number(x[y.indexOf(best)]) }), look: "bad" };
    }
    if (name === "tokens_per_second") return { text: this.pace ? t("tile.per_step", { seconds: this.pace < 10 ? `${number(this.pace, 2)} s` : duration(this.pace) }) : "" };
    if (name === "tokens") {
      const planned = this.total && this.step ? (y.at(-1) / (x.at(-1) || 1)) * this.total : null;
      return { text: planned && !ENDED.has(this.page.detail.state) ? t("tile.of_about", { all: short(planned) }) : "" };
    }
    return this.trend(name, x, y);
  }

  /** The newest tenth of the curve against the tenth before it. */
  trend(name, x, y) {
    const window = Math.max(2, Math.floor(y.length / 10));
    if (y.length < 2 * window) return { text: "" };
    const mean = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;
    const now = mean(y.slice(-window));
    const before = mean(y.slice(-2 * window, -window));
    const steps = x.at(-1) - x.at(-1 - window);
    const change = (now - before) / (Math.abs(before) || 1);
    if (!Number.isFinite(change) || Math.abs(change) < 0.02) return { text: t("tile.steady", { steps: number(steps) }) };
    const text = t(change < 0 ? "tile.down" : "tile.up", { share: number(Math.abs(change) * 100, Math.abs(change) < 0.1 ? 1 : 0), steps: number(steps) });
    const sinks = /loss|no_spread|clipped/.test(name);
    const rises = /accuracy|margin|reward\/mean|objective|explained/.test(name);
    const good = sinks ? change < 0 : change > 0;
    return { text, look: sinks || rises ? (good ? "good" : "bad") : "" };
  }
}
