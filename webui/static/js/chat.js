// Talk to a trained model beside the one it came from: same question, same seed, both answers as they come.
import { api, bytes, el, number, t, toast } from "./base.js";
import { answer, stop } from "./chat/answers.js";
import { keep, kept } from "./chat/kept.js";
import { Panel } from "./chat/settings.js";
import { Turn } from "./chat/turn.js";
import { eachFrame, fill } from "./dom.js";

const NOBODY = "";
const named = (one) => (one.kind === "run" ? `${one.title} · ${one.run.slice(0, 13)}` : one.title);

/** Fill the page. */
export async function start(root) {
  const body = root.querySelector(".body");
  try {
    const [{ speakers }, state] = await Promise.all([api("/chat/speakers"), api("/chat/state")]);
    if (!speakers.length) return nothing(body);
    new ChatPage(root, body, speakers, state);
  } catch (reason) {
    fill(body, el("div.box.err", { role: "alert" }, reason.message));
  }
}

function nothing(body) {
  fill(body, el("section.card.empty", { "data-testid": "chat-empty" }, el("h2", {}, t("chat.nothing")), el("p.sub", {}, t("chat.nothing_text")),
    el("p.actions", {}, el("a.btn.primary", { href: "/new" }, t("nav.new")))));
}

class ChatPage {
  constructor(root, body, speakers, state) {
    Object.assign(this, { root, speakers });
    this.turns = [];
    this.running = null;
    this.panel = new Panel(state.settings);
    this.build(body, state);
    const before = kept();
    this.choose();
    if (before) this.restore(before);
    addEventListener("pagehide", () => this.keep());
    document.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.running && !document.querySelector("dialog[open], .menu")) this.stop(); });
  }

  build(body, state) {
    this.who = this.select("chat-who", t("chat.who"), () => this.chosen());
    this.step = this.select("chat-step", t("chat.step"), () => this.begin());
    this.beside = this.select("chat-beside", t("chat.beside"), () => this.begin());
    this.memory = el("span.sub", { "data-testid": "chat-memory" });
    this.note = el("div.box.warn", { hidden: !state.note, "data-testid": "chat-note" }, state.note ?? "");
    this.log = el("div.chat-log", { role: "log", "aria-label": t("chat.conversation"), "aria-live": "off", tabindex: "0", "data-testid": "chat-log" });
    this.spoken = el("div.hide", { role: "status", "aria-live": "polite" });
    this.input = el("textarea.field", {
      rows: 2, maxlength: 100000, placeholder: t("chat.placeholder"), "aria-label": t("chat.message"), "data-testid": "chat-input",
      onkeydown: (event) => this.key(event), oninput: () => this.grow(),
    });
    this.send = el("button.btn.primary", { type: "button", "data-testid": "chat-send", onclick: () => (this.running ? this.stop() : this.ask(this.input.value)) });
    this.again = el("button.btn.small", { type: "button", "data-testid": "chat-again", onclick: () => this.regenerate() }, t("chat.again"));
    this.template = el("button.btn.small", { type: "button", "data-testid": "chat-template", onclick: () => this.showTemplate() }, t("chat.template"));
    this.fresh = el("button.btn", { type: "button", "data-testid": "chat-new", onclick: () => this.begin() }, t("chat.new"));
    this.root.querySelector(".btns").replaceChildren(this.fresh);
    fill(body,
      el("section.card.chat-pick", {}, this.who.label, this.step.label, this.beside.label, this.memory),
      this.note,
      this.panel.element,
      el("section.card.chat-room", {}, this.log, this.spoken,
        el("div.chat-compose", {}, this.input, this.send),
        el("div.chat-foot", {}, el("span.sub", {}, t("chat.keys")), el("span.btns", {}, this.again, this.template))));
    this.memoryLine(state.loaded);
    this.draw();
  }

  select(id, label, changed) {
    const select = el("select.field", { id, "data-testid": id, onchange: changed });
    return { select, label: el("label.chat-field", { for: id }, el("span", {}, label), select) };
  }

  /** Who the address asks for, else the newest run, else the first model. */
  choose() {
    const asked = new URLSearchParams(location.search);
    const model = asked.get("model");
    // A model that is not in the list, as one in the hub's cache: the server says whether it is there.
    if (model && !this.speakers.some((one) => one.key === `model:${model}`))
      this.speakers.push({ key: `model:${model}`, title: model.split("/").at(-1), kind: "model", run: null, finished: true, checkpoints: [], base: null });
    fill(this.who.select, [["run", t("chat.runs")], ["model", t("chat.models")]].map(([kind, label]) => {
      const all = this.speakers.filter((one) => one.kind === kind);
      return all.length ? el("optgroup", { label }, all.map((one) => el("option", { value: one.key }, named(one)))) : null;
    }));
    const wanted = this.speakers.find((one) => one.run && one.run === asked.get("id")) ?? this.speakers.find((one) => one.key === `model:${model}`);
    if (!wanted && asked.get("id")) toast(t("chat.not_there"), "err");
    this.who.select.value = (wanted ?? this.speakers[0]).key;
    this.chosen(asked.get("step"));
    this.input.focus({ preventScroll: true });
  }

  /** Go on where this tab was, unless the address asks for somebody else. */
  restore({ chosen, turns }) {
    const isThere = (select, value) => [...select.options].some((one) => one.value === value);
    const asked = new URLSearchParams(location.search);
    if ((asked.has("id") || asked.has("model")) && this.who.select.value !== chosen.who) return;
    if (!isThere(this.who.select, chosen.who)) return;
    this.who.select.value = chosen.who;
    this.chosen();
    for (const name of ["step", "beside"]) if (isThere(this[name].select, chosen[name])) this[name].select.value = chosen[name];
    fill(this.log);
    for (const { question, columns, answers } of turns) {
      const turn = new Turn(question, columns, this);
      this.turns.push(turn);
      this.log.append(turn.element);
      for (const [at, one] of answers.entries()) turn.answers[at].recall(one);
      for (const one of turn.answers) one.drawTools();
    }
    this.buttons();
    this.log.scrollTop = this.log.scrollHeight;
  }

  keep() {
    keep({ who: this.who.select.value, step: this.step.select.value, beside: this.beside.select.value }, this.turns);
  }

  chosen(step = null) {
    const one = this.speaker;
    const finished = one.finished ? [el("option", { value: one.key }, t("chat.finished"))] : [];
    fill(this.step.select, finished, [...one.checkpoints].reverse().map((at) => el("option", { value: `run:${one.run}@${at}` }, t("chat.at_step", { n: number(at) }))));
    this.step.label.hidden = one.checkpoints.length === 0;
    if (step && one.checkpoints.includes(Number(step))) this.step.select.value = `run:${one.run}@${step}`;
    const others = this.speakers.filter((other) => other.key !== one.key);
    fill(this.beside.select,
      el("option", { value: NOBODY }, t("chat.nobody")),
      one.base ? el("option", { value: one.base }, t("chat.base", { name: one.base_title })) : null,
      [...one.checkpoints].reverse().map((at) => el("option", { value: `run:${one.run}@${at}` }, `${one.title} · ${t("chat.at_step", { n: number(at) })}`)),
      others.map((other) => el("option", { value: other.key }, named(other))));
    this.beside.select.value = one.base ?? NOBODY;
    this.begin();
  }

  get speaker() { return this.speakers.find((one) => one.key === this.who.select.value); }

  get key_of_first() { return this.step.label.hidden ? this.speaker.key : this.step.select.value; }

  get columns() {
    const first = { key: this.key_of_first, title: this.speaker.title, is_base: false };
    const beside = this.beside.select.value;
    if (beside === NOBODY) return [first];
    const is_base = beside === this.speaker.base;
    return [first, { key: beside, title: is_base ? this.speaker.base_title : this.beside.select.selectedOptions[0].textContent, is_base }];
  }

  /** A new conversation with who is chosen now. */
  begin() {
    this.stop(true);
    this.turns = [];
    this.keep();
    this.draw();
  }

  draw() {
    if (!this.turns.length)
      fill(this.log, el("div.chat-hello", { "data-testid": "chat-hello" }, el("h2", {}, t("chat.hello", { name: this.speaker?.title ?? "" })), el("p.sub", {}, t(this.beside?.select.value ? "chat.hello_two" : "chat.hello_one"))));
    this.buttons();
  }

  buttons() {
    const busy = this.running !== null;
    fill(this.send, t(busy ? "chat.stop" : "chat.send"));
    this.send.classList.toggle("danger", busy);
    this.send.classList.toggle("primary", !busy);
    this.again.disabled = this.template.disabled = busy || !this.turns.length;
    this.log.setAttribute("aria-busy", String(busy));
  }

  key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.running) this.ask(this.input.value);
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 240)}px`;
  }

  regenerate() {
    const last = this.turns.pop();
    last.element.remove();
    this.ask(last.question, { anew: true });
  }

  async ask(text, { anew = false } = {}) {
    const question = text.trim();
    if (this.running) return;
    if (!question) {
      toast(t("chat.write_first"));
      this.input.focus();
      return;
    }
    const columns = this.columns;
    const turn = new Turn(question, columns, this);
    if (!this.turns.length) fill(this.log);
    const settings = this.panel.values();
    // The same dice for both, and others when the question is asked again.
    if (settings.seed === undefined || anew) settings.seed = crypto.getRandomValues(new Uint32Array(1))[0];
    for (const one of turn.answers) one.asked = this.messages(one.at, question);
    this.turns.push(turn);
    this.log.append(turn.element);
    if (!anew) { this.input.value = ""; this.grow(); }
    this.log.scrollTop = this.log.scrollHeight;
    this.running = { turn, abort: new AbortController() };
    this.buttons();
    const { signal } = this.running.abort;
    const ended = await Promise.all(turn.answers.map((one) => this.one(one, settings, signal)));
    if (signal.aborted && !this.turns.includes(turn)) return;
    this.running = null;
    for (const one of turn.answers) one.drawTools();
    this.keep();
    const problem = ended.find((one) => one instanceof Error);
    if (problem && this.panel.show(problem.findings ?? [])) this.input.value ||= question;
    else this.panel.show([]);
    this.spoken.textContent = problem ? problem.message : turn.answers.map((one) => `${one.column.title}: ${one.text}`).join(". ");
    this.buttons();
    api("/chat/state").then((state) => { this.memoryLine(state.loaded); this.note.hidden = !state.note; this.note.textContent = state.note ?? ""; }).catch(() => {});
  }

  async one(one, settings, signal) {
    try {
      one.finish(await answer({ speaker: one.column.key, messages: one.asked, settings }, (event) => one.hear(event), signal));
      return null;
    } catch (reason) {
      one.fail(reason);
      return reason;
    }
  }

  /** The conversation of one column: every column goes on with its own answers. */
  messages(at, question) {
    const system = this.panel.system.value.trim();
    const made = system ? [{ role: "system", content: system }] : [];
    for (const turn of this.turns) {
      const said = turn.answers[at]?.text;
      if (said) made.push({ role: "user", content: turn.question }, { role: "assistant", content: said });
    }
    return [...made, { role: "user", content: question }];
  }

  /** End what is being answered; `leave` also forgets it. */
  stop(leave = false) {
    if (!this.running) return;
    const { turn, abort } = this.running;
    for (const one of turn.answers) if (one.id && !one.done && !leave) stop(one.id);
    // Who has not begun (a model that is still loading) has no id to be stopped by: going away ends it.
    if (leave || turn.answers.some((one) => !one.id && !one.done)) abort.abort();
    if (leave) this.running = null;
  }

  /** Change the page once per frame, and keep its end in sight when it was. */
  follow(change) {
    (this.changes ??= []).push(change);
    this.paint ??= eachFrame(() => {
      const end = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
      for (const one of this.changes.splice(0)) one();
      if (end) this.log.scrollTop = this.log.scrollHeight;
    });
    this.paint();
  }

  async showTemplate() {
    const last = this.turns.at(-1);
    const first = last.answers[0];
    const messages = first.text ? [...first.asked, { role: "assistant", content: first.text }] : first.asked;
    try {
      const told = await api("/chat/render", { speaker: first.column.key, messages });
      const pieces = told.tokens.map(([text, special], at) => el(`span.tok${special ? ".special" : ""}${at % 2 ? ".odd" : ""}`, {}, text));
      const dialog = el("dialog.ask.chat-rendered", { "aria-labelledby": "rendered", "data-testid": "chat-rendered" },
        el("h2", { id: "rendered" }, t("chat.template")),
        el("p.sub", {}, t("chat.template_about", { n: number(told.count) })),
        el("pre.mono", { tabindex: "0" }, pieces),
        el("form.btns", { method: "dialog" }, el("button.btn", {}, t("chat.close"))));
      document.body.append(dialog);
      dialog.addEventListener("close", () => dialog.remove());
      dialog.showModal();
    } catch (reason) {
      toast(reason.message, "err");
    }
  }

  memoryLine(loaded) {
    if (!loaded.length) { fill(this.memory, t("chat.memory_none")); return; }
    const total = loaded.reduce((sum, one) => sum + one.memory, 0);
    const free = el("button.linklike", { type: "button", "data-testid": "chat-unload", onclick: () => api("/chat/unload", {}).then(() => this.memoryLine([])).catch((reason) => toast(reason.message, "err")) }, t("chat.unload"));
    fill(this.memory, t("chat.memory", { n: loaded.length, size: bytes(total) }), " ", free);
  }
}
