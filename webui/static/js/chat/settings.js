// System prompt and the settings of an answer, remembered by this browser.
import { el, has, sentence, t } from "../base.js";

const STORE = "factory-chat";
const SHOWN = ["temperature", "top_p", "top_k", "max_tokens", "repetition_penalty", "seed"];
const STEPS = { temperature: 0.1, top_p: 0.05, repetition_penalty: 0.05 };

/** A panel of fields made from what the server says about the settings. */
export class Panel {
  constructor(told) {
    this.fields = new Map();
    const kept = read();
    this.system = el("textarea.field", {
      id: "chat-system", rows: 3, maxlength: 20000, value: kept.system ?? "", "data-testid": "chat-system",
      placeholder: t("chat.system_hint"), onchange: () => this.keep(),
    });
    const rows = told.filter((one) => SHOWN.includes(one.name)).map((one) => this.row(one, kept.settings?.[one.name]));
    this.element = el("details.card.chat-settings", { "data-testid": "chat-settings" },
      el("summary", {}, t("chat.settings")),
      el("div.chat-fields", {},
        el("label.chat-field.wide", { for: "chat-system" }, el("span", {}, t("chat.system")), this.system),
        rows),
      this.about = el("p.sub", { id: "chat-about", role: "status" }, t("chat.settings_about")));
  }

  row(one, value) {
    const id = `chat-${one.name}`;
    const fallback = one.name === "seed" ? t("chat.drawn") : one.default ?? t("chat.own", { value: one.else });
    const field = el("input.field", {
      id, type: "number", min: one.minimum, max: one.maximum, step: STEPS[one.name] ?? (one.type === "number" ? "any" : 1),
      placeholder: String(fallback), value: value ?? "", inputmode: "decimal", "aria-describedby": `${id}-error chat-about`,
      "data-testid": id, onchange: () => this.keep(),
      onfocus: () => { this.about.textContent = one.help; },
      onblur: () => { this.about.textContent = t("chat.settings_about"); },
    });
    const error = el("span.chat-error", { id: `${id}-error`, role: "status" });
    this.fields.set(one.name, { field, error });
    const name = has(`chat.set.${one.name}`) ? t(`chat.set.${one.name}`) : one.name;
    return el("label.chat-field", { for: id }, el("span", {}, name), field, error);
  }

  /** What is set, by name; empty fields are left to the model. */
  values() {
    const made = {};
    for (const [name, { field }] of this.fields) if (field.value !== "") made[name] = Number(field.value);
    return made;
  }

  /** Show what the server refuses beside its field; true when every one has found its place. */
  show(findings) {
    for (const { field, error } of this.fields.values()) { error.textContent = ""; field.removeAttribute("aria-invalid"); }
    const placed = findings.filter((one) => this.fields.has(one.field));
    for (const one of placed) {
      const { field, error } = this.fields.get(one.field);
      error.textContent = sentence(one);
      field.setAttribute("aria-invalid", "true");
      this.element.open = true;
    }
    return placed.length > 0 && placed.length === findings.length;
  }

  keep() {
    try { localStorage.setItem(STORE, JSON.stringify({ system: this.system.value, settings: this.values() })); } catch { /* private windows keep nothing */ }
  }
}

function read() {
  try { return JSON.parse(localStorage.getItem(STORE)) ?? {}; } catch { return {}; }
}
