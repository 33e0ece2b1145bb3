// The state of the page: the text of the job, which is the truth, and what the widgets show for it.
import { Refusal, api, later } from "../base.js";
import { same } from "./typed.js";

const CHECK_AFTER = 350;
const COUNT_AFTER = 1500;
const SIZES = ["memory_too_small", "host_memory_too_small", "disk_too_small", "disk_full"];

export class Form extends EventTarget {
  constructor(made) {
    super();
    this.made = made;
    this.text = "";
    this.values = { ...made.values };
    this.typed = {};
    this.offers = { fresh: new Set() };
    this.kinds = { stage: null, method: "lora" };
    this.findings = [];
    this.presets = {};
    this.set = new Set();
    this.data = null;
    this.pending = {};
    this.opened = null;
    this.busy = new Promise((resolve) => { this.opened = resolve; });
    this.checked = { findings: [], text: null };
    this.plan = null;
    this.lookSoon = later(() => this.look(), CHECK_AFTER);
  }

  /** The page knows with what it begins. What was typed before waits, and changes that. */
  open() {
    this.opened();
    this.busy = null;
  }

  on(name, act) { this.addEventListener(name, () => act(this)); }
  tell(name) { this.dispatchEvent(new Event(name)); }

  /** Somebody set a widget. Another kind of a part has other fields: then the form is filled anew. */
  pick(id, value) {
    if (id === "have") this.have(value);
    else this.change({ [id]: value }, { fill: id in this.made.kinds });
  }

  /** Widgets show something new. Changes that come while the last ones are on their way go together. */
  change(changes, { fill = false } = {}) {
    const news = Object.entries(changes).filter(([id, value]) => !same(this.values[id], value));
    if (!news.length) return this.busy ?? Promise.resolve();
    Object.assign(this.pending, Object.fromEntries(news));
    Object.assign(this.values, Object.fromEntries(news));
    this.refill ||= fill;
    this.busy ??= this.send();
    return this.busy;
  }

  async send() {
    try {
      while (Object.keys(this.pending).length) {
        const [changes, fill] = [this.pending, this.refill];
        [this.pending, this.refill] = [{}, false];
        this.take(await ask({ yaml: this.text, changes, typed: this.typed, fill }));
      }
    } finally {
      this.busy = null;
    }
  }

  /** Fill the form from a text. Throws a Refusal when it cannot be read; then everything stays as it was. */
  fill(text) {
    return this.alone(async () => {
      this.take(await ask({ yaml: text, typed: this.typed, fill: true }));
      this.tell("filled");
    });
  }

  /** One question at a time: keys pressed meanwhile change the text that comes of it, never the one before. */
  async alone(work) {
    while (this.busy) await this.busy.catch(() => {}); // its refusal is told to whoever asked
    const working = work().finally(() => {
      this.busy = Object.keys(this.pending).length ? this.send() : null;
    });
    this.busy = working.catch(() => {});
    return working;
  }

  /** An edited text was refused: until it is mended or discarded, its findings are the only ones, and Start is blocked. */
  hold(findings) {
    this.held = findings;
    this.tell("findings");
  }

  /** The edited text is gone: what holds for the job is told again. */
  release() {
    if (!this.held) return;
    this.held = null;
    this.tell("findings");
  }

  take(answer) {
    this.held = null;
    const kinds = this.kinds;
    Object.assign(this, {
      text: answer.yaml, findings: answer.findings, presets: answer.presets, kinds: answer.kinds,
      rewarded: answer.rewarded, data: answer.data, set: new Set(answer.set),
    });
    if (answer.values) {
      this.values = { ...answer.values, have: this.shapeOf(answer.kinds.stage), ...this.pending };
      this.tell("values");
    }
    if (!same(kinds, this.kinds)) this.tell("kinds");
    if (this.checked.text !== this.text) this.checked = { findings: [], text: null };
    this.tell("text");
    this.tell("findings");
    this.lookSoon();
  }

  /** What lies deeper than the spec: files, model, rows, memory. */
  async look() {
    const text = this.text;
    if (this.plan?.counts && this.planText === text && this.checked.text === text) return;
    if (!text.trim()) { this.plan = null; this.tell("plan"); return; }
    this.looking?.abort();
    this.looking = new AbortController();
    const { signal } = this.looking;
    try {
      const told = await api("/jobs/check", { yaml: text }, { signal });
      if (text !== this.text) return;
      this.checked = { findings: told.findings, text };
      this.tell("findings");
      clearTimeout(this.counting);
      if (!this.isPlannable()) { this.plan = null; this.tell("plan"); return; }
      await this.forecast(text, signal, true);
      if (told.ok && this.isCheap()) this.counting = setTimeout(() => this.count(), COUNT_AFTER);
    } catch (refusal) {
      if (refusal.name !== "AbortError") this.failed(refusal);
    }
  }

  async forecast(text, signal, quick) {
    try {
      const told = await api("/jobs/plan", { yaml: text, quick }, { signal });
      if (text !== this.text) return;
      this.plan = told.plan;
      this.planText = text;
      if (!quick) this.planned = { findings: told.findings ?? [], text };
    } catch (refusal) {
      if (refusal.name === "AbortError") throw refusal;
      if (text === this.text) this.plan = null;
      if (!quick) this.planned = { findings: refusal.findings, text };
    }
    this.tell("plan");
    if (!quick) this.tell("findings");
  }

  /** Whether only the size of the machine speaks against the job: then there is a forecast to show. */
  isPlannable() { return this.errors().every((one) => SIZES.includes(one.code)); }

  /** Exact numbers, by the model's own tokenizer. */
  async count() {
    if (this.isCounting) return;
    const text = this.text;
    this.isCounting = true;
    this.tell("plan");
    try {
      await this.forecast(text, undefined, false);
    } finally {
      this.isCounting = false;
      this.tell("plan");
      if (text !== this.text) this.lookSoon();
    }
  }

  /** Whether counting takes a moment only: no network, and not much to read. */
  isCheap() {
    const files = this.plan?.files ?? [];
    const size = files.reduce((sum, one) => sum + one.bytes, 0);
    return this.plan?.model_kind !== "hub" && files.length > 0 && size < 4e6 && !this.plan.counts;
  }

  failed(refusal) {
    this.plan = null;
    if (refusal.findings?.length) this.checked = { findings: refusal.findings, text: this.text };
    this.tell("findings");
    this.tell("plan");
  }

  /** Everything there is to tell, each once, errors first. */
  all() {
    if (this.held) return this.held;
    const known = new Set(this.findings.map((one) => one.field));
    const deeper = this.checked.findings.filter((one) => one.field === null || !known.has(one.field));
    const planned = this.planned?.text === this.text ? this.planned.findings : [];
    const all = [...this.findings, ...deeper, ...planned];
    const unique = all.filter((one, at) => all.findIndex((other) => other.code === one.code && other.field === one.field) === at);
    return ["error", "warning", "note"].flatMap((level) => unique.filter((one) => one.level === level));
  }

  errors() { return this.all().filter((one) => one.level === "error"); }

  /** Set fields as a finding's fix does: the text is edited, then the form filled from it. */
  apply(fix) {
    return this.alone(async () => {
      this.take(await ask({ yaml: this.text, put: fix, typed: this.typed, fill: true }));
      this.tell("filled");
    });
  }

  shapeOf(stage) {
    const needs = this.made.stages[stage]?.needs ?? [];
    return needs.includes(this.values.have) ? this.values.have : needs[0] ?? this.values.have ?? null;
  }

  show(place, text, findings) { this.refused = { text, findings }; this.tell(`show-${place}`); }
}

/** Ask what a form and a text make of each other; a text that cannot be read is a Refusal with all that is wrong. */
async function ask(question) {
  const answer = await api("/jobs/form", question);
  if (!answer.readable) throw new Refusal(422, { ...answer.findings[0], findings: answer.findings });
  return answer;
}
