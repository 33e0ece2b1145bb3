// What is wrong stands under its field, with a button where one click mends it; presets stand in empty fields.
import { el, sentence, t } from "../base.js";

/** The id of a field's widget: `stage.max_length` is a widget of the chosen stage. */
export function widgetOf(form, field) {
  if (!field) return null;
  const plain = field.replace(/\[.*$/, "");
  if (/^data\.sources|^data\.path$/.test(plain)) return "data";
  const [part, ...rest] = plain.split(".");
  const kind = form.kinds[part];
  if (!rest.length) return part === "model" ? "model.name" : part;
  if (plain === `${part}.name` && part in form.kinds) return part;
  return kind ? [part, kind, ...rest].join(".") : plain;
}

export const elementOf = (id) => id && document.getElementById(`f-${id.replaceAll(".", "-")}`);

export function fixButton(form, finding) {
  if (!finding.fix) return null;
  const parts = Object.entries(finding.fix).map(([field, value]) =>
    `${field} ${value === null ? t("new.fix.empty") : `= ${typeof value === "object" ? JSON.stringify(value) : plain(value)}`}`);
  return el("button.fix", {
    type: "button", "data-testid": "fix", onclick: () => form.apply(finding.fix),
  }, t("new.fix", { change: parts.join(", ") }));
}

export function marks(form) {
  const live = el("div.hide", { role: "status", "aria-live": "polite", "data-testid": "told" });
  document.getElementById("content").append(live);
  const draw = () => {
    for (const old of document.querySelectorAll("[data-mark]")) old.remove();
    for (const input of document.querySelectorAll("[data-marked]")) {
      for (const name of ["aria-invalid", "aria-describedby", "data-marked"]) input.removeAttribute(name);
    }
    const places = new Map();
    for (const finding of form.all()) {
      const place = elementOf(widgetOf(form, finding.field));
      if (!place || isInList(form, finding.field) || isUntouched(form, finding)) continue;
      places.set(place, [...(places.get(place) ?? []), finding]);
    }
    for (const [place, findings] of places) mark(form, place, findings);
    const errors = form.errors().filter((one) => !isUntouched(form, one)).map(sentence);
    if (live.textContent !== errors.join(" ")) live.textContent = errors.join(" ");
  };
  form.on("findings", draw);
  form.on("text", () => hints(form));
}

/** A page just opened is not full of red: what is missing is told by Start until somebody begins. */
function isUntouched(form, finding) {
  return finding.code === "missing_field" && !form.text.trim();
}

function isInList(form, field) {
  return Object.keys(form.made.lists).some((id) => id !== "data.sources" && (field === id || field?.startsWith(`${id}[`)));
}

function mark(form, place, findings) {
  const id = `${place.id}-told`;
  const lines = findings.map((one) =>
    el(`div.line.${one.level}`, {}, el("span", {}, sentence(one)), fixButton(form, one)));
  place.append(el("div.told", { id, "data-mark": "" }, lines));
  if (!findings.some((one) => one.level === "error")) return;
  for (const input of place.querySelectorAll("input, textarea")) {
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", id);
    input.dataset.marked = "";
  }
}

/** What holds for a field that is left empty, and which fields the job mentions. */
function hints(form) {
  for (const place of document.querySelectorAll(".new-page .f.set")) {
    if (![...form.set].some((id) => elementOf(id) === place)) place.classList.remove("set");
  }
  for (const id of form.set) elementOf(id)?.classList.add("set");
  for (const old of document.querySelectorAll("[data-preset]")) old.remove();
  for (const [id, value] of Object.entries(form.presets)) {
    const place = elementOf(id);
    const text = t("form.preset_is", { value: plain(value) });
    const input = place?.querySelector("[data-testid=textbox]");
    if (input) input.placeholder = text;
    else place?.querySelector("[data-testid=block-info]")?.append(el("span.preset", { "data-preset": "" }, plain(value)));
  }
}

export function plain(value) {
  if (typeof value === "boolean") return t(value ? "form.on" : "form.off");
  if (typeof value !== "number") return String(value);
  return value !== 0 && Math.abs(value) < 1e-2 ? value.toExponential().replace("e+", "e") : String(value);
}

/** Bring a field into view and into focus, opened if it is folded away. */
export function jump(form, field) {
  const place = elementOf(widgetOf(form, field)) ?? document.getElementById(`list-${field?.split("[")[0].replaceAll(".", "-")}`);
  if (!place) return;
  if (place.closest("#more-body")) form.tell("open-more");
  place.scrollIntoView({ block: "center", behavior: "smooth" });
  place.querySelector("input:not([type=hidden]), textarea, button")?.focus({ preventScroll: true });
}
