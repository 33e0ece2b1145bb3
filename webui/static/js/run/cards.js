// What stands on top of a run: why it failed and what to try, its place in the queue, what it is doing before the first step.
import { api, el, figure, number, t, toast, told } from "../base.js";
import { draft, fill, sign } from "../dom.js";
import { clock, ENDED, eventWords, phaseWords, reasonWords, settingText, textOr } from "../words.js";

const PHASES = ["queued", "loading", "preparing", "training"];

export class Cards {
  constructor(page) {
    this.page = page;
    this.element = el("div.on-top");
  }

  draw() {
    const { detail, phase, events, series, start } = this.page;
    const warnings = this.warnings();
    const shape = JSON.stringify([detail.state, detail.place, detail.reason, detail.card, phase?.end, start?.end, series.names.length > 0, detail.model_bytes, warnings.map((one) => one.end), events.length && detail.state === "starting", detail.grace_until]);
    if (shape === this.shape) return;
    this.shape = shape;
    fill(this.element, this.error(), this.queue(), this.starting(), this.stopping(), this.done(), warnings.map((one) => this.warning(one)));
    this.element.hidden = !this.element.childElementCount;
  }

  error() {
    const { detail, events } = this.page;
    if (detail.state !== "failed" && detail.state !== "lost" && !(detail.state === "stopped" && detail.reason)) return null;
    const last = events.findLast((one) => one.event === "error");
    const message = detail.state === "failed" && last ? told(last) : reasonWords(detail);
    const card = detail.card;
    if (detail.state === "stopped") return el("div.box.warn", { role: "status" }, message);
    const changes = Object.entries(card?.changes ?? {});
    return el("section.card.error-card", { role: "alert", "data-testid": "error-card" },
      el("h2", {}, sign("warn", 18), t(detail.state === "lost" ? "card.lost" : "card.failed")),
      message ? el("p.what", {}, message) : null,
      card ? el("dl", {},
        el("dt", {}, t("card.cause")), el("dd", {}, textOr(`card.${card.code}.cause`, card.cause)),
        card.setting ? [el("dt", {}, t("card.setting")), el("dd.mono", {}, card.setting)] : null,
        el("dt", {}, t("card.change")), el("dd", {}, textOr(`card.${card.code}.change`, card.change), changes.length ? el("span.changes", {}, changes.map(([name, value]) => el("code", {}, `${name}: ${settingText(value)}`))) : null),
        el("dt", {}, t("card.command")), el("dd", {}, el("code", {}, card.command), el("button.btn.small.plain", { type: "button", "aria-label": t("card.copy"), title: t("card.copy"), onclick: () => copy(card.command) }, sign("copy", 14)))) : null,
      el("div.btns", {},
        changes.length ? el("button.btn.primary", { type: "button", "data-testid": "retry-change", title: t("card.retry_help"), onclick: (event) => this.retry(event.currentTarget, card.changes) }, t("card.retry")) : null,
        el("a.btn", { href: "#log", onclick: (event) => { event.preventDefault(); this.page.log.element.scrollIntoView({ behavior: "smooth" }); } }, t("card.see_log"))));
  }

  /** Starts the same job with the change of the card, as a run of its own, and goes there. */
  async retry(button, changes) {
    button.disabled = true;
    try {
      const { run } = await api(`/runs/${this.page.id}/retry`, { changes, draft: this.draftOf(changes) });
      location.href = `/run?id=${encodeURIComponent(run.id)}`;
    } catch (reason) {
      toast(reason.message, "err");
      button.disabled = false;
    }
  }

  /** The same word for every press of the same change. */
  draftOf(changes) {
    const key = JSON.stringify(changes);
    if (this.draft?.key !== key) this.draft = { key, word: draft() };
    return this.draft.word;
  }

  queue() {
    const { detail } = this.page;
    if (detail.state !== "queued") return null;
    return el("section.card.queue-card", { "data-testid": "queue-card" },
      el("div.big", {}, detail.place ? t(detail.place === 1 ? "queue.next" : "queue.place", { place: number(detail.place) }) : t("queue.waiting")),
      el("p.sub", {}, reasonWords(detail) || t("queue.text")),
      detail.card ? el("p.sub", {}, textOr(`card.${detail.card.code}.change`, detail.card.change)) : null);
  }

  /** Until the first step there are no curves: the way there, with what is going on now. */
  starting() {
    const { detail, phase, series, start } = this.page;
    if (ENDED.has(detail.state) || detail.state === "queued" || detail.state === "stopping" || series.names.length) return null;
    const now = start ? "training" : phase?.name ?? "loading";
    const at = Math.max(1, PHASES.indexOf(now));
    return el("section.card.starting", { role: "status", "data-testid": "starting" },
      el("ol.phases", {}, PHASES.slice(1).map((name, place) => el(`li${place + 1 < at ? ".done" : place + 1 === at ? ".now" : ""}`, {},
        el("span.mark", { "aria-hidden": "true" }, place + 1 < at ? sign("check", 13) : place + 1 === at ? el("span.spin") : null),
        el("span", {}, t(`phase.${name}`))))),
      el("p.sub", {}, start ? t("phase.first_step") : phase ? phaseWords(phase) : t("phase.libraries")));
  }

  stopping() {
    const { detail } = this.page;
    if (detail.state !== "stopping") return null;
    return el("div.box.warn", { role: "status" }, detail.grace_until ? t("run.stopping_until", { time: clock(detail.grace_until, true) }) : t("run.stopping"));
  }

  done() {
    const { detail } = this.page;
    if (detail.state !== "succeeded") return null;
    return el("section.card.done-card", { "data-testid": "done-card" },
      el("div", {}, el("h2", {}, sign("check", 18), t("done.title")), this.change(), el("p.sub", {}, t("done.where"), " ", el("code", {}, `${detail.path}/model`))),
      el("div.btns", {},
        el("button.btn.small", { type: "button", onclick: () => copy(`${detail.path}/model`) }, sign("copy", 14), t("done.copy")),
        el("a.btn.small", { href: `/compare?ids=${detail.id}` }, t("run.compare"))));
  }

  /** What training changed, from the result card, as soon as that is here. */
  change() {
    const line = el("p.change", { "data-testid": "result" });
    api(`/runs/${this.page.id}/result`).then(({ result }) => {
      if (result && result.base !== null && result.tuned !== null) fill(line, el("b", {}, `${t(`result.${result.measure}`)} ${figure(result.base)} → ${figure(result.tuned)}`), el("span.sub", {}, ` ${result.held_out ? t("result.held_out", { n: number(result.rows) }) : t(`result.${result.measure}_note`)}`));
    }).catch((reason) => fill(line, el("span.sub", {}, reason.message)));
    return line;
  }

  /** Warnings of this attempt, the newest three. */
  warnings() {
    if (this.page.detail.state === "succeeded") return [];
    const { events } = this.page;
    const begin = events.findLastIndex((one) => one.event === "state" && one.state === "starting");
    const found = events.slice(begin + 1).filter((one) => one.event === "warning" && one.level !== "note");
    return [...new Map(found.map((one) => [one.code, one])).values()].slice(-3);
  }

  warning(event) {
    const told = eventWords(event);
    return el("div.box.warn.warning", { "data-testid": "warning" }, sign("warn", 16), el("div", {}, el("span", {}, told.text), told.hint ? el("span.try", {}, ` ${told.hint}`) : null));
  }
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast(t("card.copied"));
  } catch {
    toast(text);
  }
}

