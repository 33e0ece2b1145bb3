// Lists of objects: rewards, and the settings of each of several sources. Fields come from the spec.
import { el, has, icon, sentence, t } from "../base.js";
import { control } from "../control.js";
import { fixButton } from "./marks.js";
import { same } from "./typed.js";

const CROSS = "M6 6l12 12M18 6 6 18";

export function lists(form) {
  for (const [id, forms] of Object.entries(form.made.lists)) {
    const place = document.getElementById(`list-${id.replaceAll(".", "-")}`);
    if (place) list(form, id, forms, place);
  }
}

function list(form, id, forms, place) {
  const kinds = Object.fromEntries(forms.map((one) => [one.kind, one]));
  const several = forms.length > 1;
  const rows = el("div.rows");
  const add = several ? adder(id, forms, (kind) => put([...now(), { kind, values: {}, other: {} }], true)) : null;
  const title = has(`new.list.${id}`) ? el("p.sub", {}, t(`new.list.${id}`)) : null;
  place.append(...[title, rows, add].filter(Boolean));
  let drawn = null;
  const now = () => structuredClone(form.values[id] ?? []);
  const put = (value, fill = false) => form.change({ [id]: value }, { fill });
  const set = (at, name, value) => {
    const all = now();
    all[at].values[name] = value;
    form.typed[id] = drawn = all;
    put(all);
  };
  const draw = () => {
    const all = form.values[id] ?? [];
    place.hidden = !several && all.length < 2;
    if (place.hidden || same(drawn, all)) return;
    drawn = structuredClone(all);
    delete form.typed[id];
    staying(rows, () => redraw(all));
    mark();
  };
  const redraw = (all) => {
    rows.replaceChildren(...all.map((row, at) => item(id, kinds[row.kind], row, at, {
      set: (name, value) => set(at, name, value),
      remove: several ? () => put(now().filter((_, other) => other !== at), true) : null,
    })));
    if (!all.length && several) rows.append(el("p.sub", { "data-testid": `${id}-none` }, t(has(`new.list.${id}.none`) ? `new.list.${id}.none` : "new.list.none")));
  };
  const mark = () => {
    for (const old of place.querySelectorAll("[data-mark]")) old.remove();
    for (const one of place.querySelectorAll("[aria-invalid]")) { one.removeAttribute("aria-invalid"); one.removeAttribute("aria-describedby"); }
    for (const finding of form.all()) {
      const found = new RegExp(`^${id.replace(".", "\\.")}\\[(\\d+)\\]\\.?([\\w]*)`).exec(finding.field ?? "");
      if (!found && finding.field !== id) continue;
      const row = found ? rows.children[+found[1]] : place;
      const field = found && row?.querySelector(`[data-name="${found[2]}"]`);
      const home = field ?? row ?? place;
      const mine = `${id}-${found?.[1] ?? "all"}-${found?.[2] ?? ""}-told`;
      home.append(el("div.told", { "data-mark": "", id: mine }, el(`div.line.${finding.level}`, {}, el("span", {}, sentence(finding)), fixButton(form, finding))));
      const input = field?.querySelector("input, select, textarea");
      if (input && finding.level === "error") { input.setAttribute("aria-invalid", "true"); input.setAttribute("aria-describedby", mine); }
      if (field) row.querySelector("details")?.setAttribute("open", "");
    }
  };
  form.on("values", draw);
  form.on("kinds", draw);
  form.on("text", draw);
  form.on("findings", mark);
  draw();
}

/** Draw anew under somebody's hands: what was unfolded stays so, and the caret stays where it was. */
function staying(rows, work) {
  const open = [...rows.querySelectorAll("details")].map((one) => one.open);
  const here = rows.contains(document.activeElement) ? document.activeElement : null;
  const { selectionStart, selectionEnd } = here ?? {};
  work();
  rows.querySelectorAll("details").forEach((one, at) => { one.open ||= open[at] ?? false; });
  const again = here ? document.getElementById(here.id) : null;
  again?.focus({ preventScroll: true });
  if (again && selectionStart !== null && selectionStart !== undefined) again.setSelectionRange?.(selectionStart, selectionEnd);
}

function adder(id, forms, add) {
  const words = has(`new.list.${id}.add`) ? t(`new.list.${id}.add`) : t("new.list.add");
  const choice = el("select.field", { "aria-label": words, "data-testid": `add-${id}` },
    el("option", { value: "" }, words), forms.map((one) => el("option", { value: one.kind }, one.title)));
  choice.addEventListener("change", () => { if (choice.value) add(choice.value); choice.value = ""; });
  return el("div.adder", {}, choice);
}

function item(id, form, row, at, { set, remove }) {
  const fields = form?.fields ?? [];
  const shown = (one) => row.values[one.name] ?? one.value;
  const changed = (one) => JSON.stringify(shown(one)) !== JSON.stringify(one.value);
  const lead = fields.filter((one) => one.required || ["weight", "mode", "pattern", "longest", "path", "quant", "dtype", "content"].includes(one.name));
  const rest = fields.filter((one) => !lead.includes(one));
  const title = row.kind ? form?.title ?? row.kind : shown(fields[0]);
  return el("div.item-card", { "data-testid": `${id}-${at}` },
    el("div.item-head", {}, el("h3", {}, title), remove
      ? el("button.tool", { type: "button", "aria-label": t("new.list.remove", { name: title }), title: t("new.list.remove", { name: title }), onclick: remove }, icon(CROSS, { size: 15 }))
      : null),
    el("div.item-grid", {}, lead.filter((one) => row.kind || one.name !== "path").map((one) => control(`${id}-${at}-${one.name}`, one, shown(one), set))),
    rest.length ? el("details", { open: rest.some(changed) }, el("summary", {}, t("new.list.rest", { count: rest.length })),
      el("div.item-grid", {}, rest.map((one) => control(`${id}-${at}-${one.name}`, one, shown(one), set)))) : null);
}
