// One question and its answers: text as it comes, speed, and what somebody thinks of each answer.
import { api, el, icon, number, t, toast } from "../base.js";
import { ask, fill, put, sign } from "../dom.js";

const THUMB = "M7 11v9H4v-9zM7 11l4-7c1.4 0 2.3 1 2 2.4L12.3 10H19a1.6 1.6 0 0 1 1.6 1.9l-1.3 6.6A1.9 1.9 0 0 1 17.4 20H7";

export class Turn {
  constructor(question, columns, page) {
    Object.assign(this, { question, page });
    this.answers = columns.map((column, at) => new Answer(this, column, at));
    this.question_box = el("div.chat-question", { "data-testid": "question" }, el("span.hide", {}, t("chat.you")), question);
    this.element = el("section.chat-turn", { "data-testid": "turn" },
      this.question_box,
      el(`div.chat-answers${columns.length > 1 ? ".two" : ""}`, {}, this.answers.map((one) => one.element)));
  }
}

class Answer {
  constructor(turn, column, at) {
    Object.assign(this, { turn, column, at, text: "", done: null, id: null, asked: null });
    this.body = el("div.chat-text", { "data-testid": "answer" });
    this.meta = el("span.sub.num", { "data-testid": "answer-speed" });
    this.tools = el("div.chat-tools", {});
    this.element = el("article.chat-answer", { "aria-label": t("chat.answer_of", { name: column.title }) },
      el("header", {}, el("b", {}, column.title), column.is_base ? el("span.chip", {}, t("chat.before")) : null),
      this.body,
      el("div.chat-end", {}, this.meta, this.tools));
    this.wait(t("chat.waiting"));
  }

  wait(words) {
    fill(this.body, el("span.chat-wait", {}, el("span.spin", { "aria-hidden": "true" }), words));
  }

  hear(event) {
    if (event.event === "loading") this.wait(t("chat.loading", { name: this.column.title }));
    if (event.event === "start") {
      this.id = event.id;
      this.seed = event.seed;
      if (event.cut) toast(t("chat.cut", { n: event.cut }));
    }
    if (event.event === "text") {
      this.text += event.text;
      this.page.follow(() => put(this.body, this.text));
    }
  }

  get page() { return this.turn.page; }

  finish(done) {
    this.done = done ?? { reason: "stopped" };
    if (done) this.text = done.text;
    if (this.text) put(this.body, this.text);
    else fill(this.body, el("span.sub", {}, t(this.done.reason === "stopped" ? "chat.stopped" : "chat.silent")));
    const parts = [];
    if (done) parts.push(t("chat.tokens", { n: number(done.tokens) }));
    if (done?.tokens_per_second) parts.push(t("chat.speed", { n: number(done.tokens_per_second, 1) }));
    if (done) parts.push(t("chat.first", { s: number(done.first, 2) }));
    if (this.done.reason === "length") parts.push(t("chat.length"));
    if (this.done.reason === "stopped" && this.text) parts.push(t("chat.stopped"));
    put(this.meta, parts.join(" · "));
    this.drawTools();
  }

  /** As it was before the page was loaded again. */
  recall({ text, done, asked, told }) {
    Object.assign(this, { text, asked });
    if (done.reason === "failed") this.fail({ message: told });
    else this.finish(done.tokens === undefined ? null : { ...done, text });
  }

  fail(reason) {
    this.done = { reason: "failed" };
    this.told = reason.message;
    fill(this.body, el("div.box.err", { role: "alert", "data-testid": "answer-error" }, reason.message));
  }

  drawTools() {
    if (!this.text.trim()) return;
    const other = this.turn.answers.find((one) => one !== this && one.text.trim() && one.done);
    fill(this.tools,
      this.rating("good", false), this.rating("bad", true),
      other ? el("button.btn.small.plain", { type: "button", "data-testid": "prefer", title: t("chat.prefer_about"), onclick: (event) => this.keep({ kind: "prefer", other: other.text }, event.currentTarget) }, t("chat.prefer")) : null,
      el("button.btn.small.plain.square", { type: "button", "aria-label": t("chat.edit"), title: t("chat.edit"), "data-testid": "edit", onclick: () => this.edit() }, sign("edit", 15)),
      el("button.btn.small.plain.square", { type: "button", "aria-label": t("chat.copy"), title: t("chat.copy"), onclick: () => navigator.clipboard?.writeText(this.text).then(() => toast(t("chat.copied"))) }, sign("copy", 15)));
  }

  rating(kind, down) {
    const button = el(`button.btn.small.plain.square${down ? ".down" : ""}`, {
      type: "button", "aria-label": t(`chat.${kind}`), title: t(`chat.${kind}`), "aria-pressed": "false", "data-testid": kind,
      onclick: () => this.keep({ kind }, button),
    }, icon(THUMB, { size: 15 }));
    return button;
  }

  async keep(what, button) {
    if (button?.getAttribute("aria-pressed") === "true") return;
    try {
      const { saved } = await api("/chat/feedback", { messages: this.asked, answer: this.text, ...what });
      for (const one of this.tools.querySelectorAll("[aria-pressed]")) if (what.kind !== "prefer") one.setAttribute("aria-pressed", String(one === button));
      if (what.kind === "prefer") button.setAttribute("aria-pressed", "true");
      toast(t("chat.kept", { file: saved[0].file, n: number(saved[0].rows) }), "ok");
    } catch (reason) {
      toast(reason.message, "err");
    }
  }

  async edit() {
    const answer = await ask({
      title: t("chat.edit"), text: t("chat.edit_about"), yes: t("chat.edit_keep"),
      fields: [{ name: "text", label: t("chat.edit_label"), value: this.text, long: true }],
    });
    if (!answer) return;
    const better = answer.text;
    try {
      const { saved } = await api("/chat/feedback", { kind: "edit", messages: this.asked, answer: this.text, other: better });
      this.text = better;
      put(this.body, better);
      toast(t("chat.kept", { file: saved[0].file, n: number(saved[0].rows) }), "ok");
    } catch (reason) {
      toast(reason.message, "err");
    }
  }
}
