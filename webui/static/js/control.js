// A control for a field of the spec, drawn by us: in lists of objects, and in dialogs.
import { el, t } from "./base.js";

/** A labelled control for a field as GET /jobs/form describes it; `set(name, value)` hears what it shows. */
export function control(name, field, value, set) {
  const change = (read) => (event) => set(field.name, read(event.target));
  const common = { id: name, "data-testid": name };
  let made;
  if (field.widget === "check")
    made = el("input", { ...common, type: "checkbox", checked: value === true, oninput: change((one) => one.checked) });
  else if (field.widget === "radio" || field.widget === "choice")
    made = el("select.field", { ...common, onchange: change((one) => one.value) },
      field.nullable ? el("option", { value: "" }, t("form.preset")) : null,
      field.choices.map((one) => el("option", { value: one, selected: one === value }, one)));
  else if (field.widget === "lines" || field.widget === "pairs" || field.long)
    made = el("textarea.field", { ...common, rows: field.long ? 5 : 2, value: value ?? "", oninput: change((one) => one.value) });
  else
    made = el("input.field", { ...common, type: "text", inputmode: field.widget === "number" ? "decimal" : null, value: value ?? "", oninput: change((one) => one.value) });
  const about = el("span.about", {}, [field.help, ...field.facts].join(" · "));
  const text = el("span.l", {}, field.label);
  return el(`label.cell${field.widget === "check" ? ".check" : ""}${field.long ? ".whole" : ""}`, { "data-name": field.name, for: name },
    field.widget === "check" ? [made, text] : [text, made], about);
}
