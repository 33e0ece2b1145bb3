// Answers to the same prompts as training goes on, beside those from before it; for sampled answers, their rewards.
import { el, figure, number, t } from "../base.js";
import { fill, put } from "../dom.js";
import { ENDED } from "../words.js";

const MOST = 12; // scored answers shown at once

export class Samples {
  constructor(page) {
    this.page = page;
    this.slider = el("input", { type: "range", min: 0, step: 1, "aria-label": t("samples.step"), "data-testid": "sample-step", oninput: () => { this.newest = this.slider.value === this.slider.max; this.at = Number(this.slider.value); this.show(); } });
    this.where = el("output");
    this.tools = el("label.smoothing", {}, t("samples.at"), this.slider, this.where);
    this.list = el("div.samples");
    this.element = el("section.card", { "aria-label": t("samples.title"), "data-testid": "samples" }, el("div.card-head", {}, el("h2", {}, t("samples.title")), this.tools), this.list);
    this.count = -1;
    this.newest = true;
  }

  draw() {
    const { samples } = this.page;
    this.element.hidden = !samples.length;
    const count = `${samples.length} ${ENDED.has(this.page.detail.state)}`;
    if (count === this.count) return;
    this.count = count;
    this.scored = samples.some((one) => Object.keys(one.scores ?? {}).length);
    this.before = new Map(samples.filter((one) => one.kind === "before").map((one) => [one.prompt, one]));
    this.steps = [...new Set(samples.filter((one) => one.kind !== "before").map((one) => one.step))].sort((a, b) => a - b);
    this.tools.hidden = this.steps.length < 2;
    this.slider.max = Math.max(0, this.steps.length - 1);
    if (this.newest || this.at > this.steps.length - 1) this.at = this.steps.length - 1;
    this.slider.value = this.at;
    this.show();
  }

  show() {
    const step = this.steps[this.at];
    put(this.where, step === undefined ? "" : t("samples.step_n", { step: number(step) }));
    const there = this.page.samples.filter((one) => one.kind !== "before" && one.step === step);
    const fixed = there.filter((one) => !Object.keys(one.scores ?? {}).length);
    const scored = there.filter((one) => Object.keys(one.scores ?? {}).length);
    const prompts = fixed.length ? fixed : [...this.before.values()];
    fill(this.list, prompts.map((one) => this.pair(one.prompt, this.before.get(one.prompt), fixed.length ? one : null)), this.group(scored));
  }

  pair(prompt, before, after) {
    const same = before && after && before.answer === after.answer;
    return el("article.sample", { "data-testid": "sample" },
      el("p.prompt", {}, prompt),
      el("div.two", {},
        this.answer(t("samples.before"), before, ""),
        after ? this.answer(after.kind === "after" ? t("samples.after", { step: number(after.step) }) : t("samples.during", { step: number(after.step) }), after, same ? "" : "new", same) : el("div.answer.waiting", {}, el("span.k", {}, t(ENDED.has(this.page.detail.state) ? "samples.never" : "samples.soon")))));
  }

  answer(label, sample, look, same = false) {
    return el(look ? `div.answer.${look}` : "div.answer", {}, el("span.k", {}, label, same ? ` · ${t("samples.same")}` : ""),
      sample ? (sample.answer ? el("p.says", {}, sample.answer) : el("p.says.none", {}, t("samples.nothing"))) : el("p.says.none", {}, t("samples.not_asked")));
  }

  /** Sampled answers with their rewards, the best first. */
  group(samples) {
    if (!samples.length) return null;
    const total = (one) => Object.values(one.scores).reduce((sum, value) => sum + value, 0);
    const prompts = [...new Set(samples.map((one) => one.prompt))];
    return prompts.slice(0, MOST).map((prompt) => el("article.sample", { "data-testid": "sample" }, el("p.prompt", {}, prompt),
      samples.filter((one) => one.prompt === prompt).sort((a, b) => total(b) - total(a)).slice(0, MOST).map((one) => el("div.answer", {},
        el("p.says", {}, one.answer || t("samples.nothing")),
        el("div.scores", {}, Object.entries(one.scores).map(([name, value]) => el("span.tag", {}, `${name} `, el("b", {}, figure(value)))))))));
  }
}
