// What stands in the widgets. Gradio draws them, but what it is asked to write it writes some moments later: a key
// pressed in between would be lost. So texts, switches and choices are read here, and texts and switches written here,
// at once. What only Gradio can set (its lists, and no choice at all) is looked at again when it has landed.
import { putText, same } from "./typed.js";

const TEXT = "[data-testid=textbox]";
const CHECK = "input[type=checkbox]";
const LIST = "input[role=combobox]";
const UNTIL_TAKEN = 60;
const GRADIO_WORDS = ["file"]; // as webui/widgets.py has them: Gradio holds these with a sign before them
const held = (value) => (GRADIO_WORDS.includes(value) ? `=${value}` : value);
const plain = (value) => (typeof value === "string" ? value.replace(/^=/, "") : value);

export function widgets(form) {
  const ids = Object.keys(form.made.widgets).filter((id) => form.made.widgets[id] !== "rows");
  const idOf = new Map(["have", ...ids].map((id) => [elementId(id), id]));
  const shows = { have: null, ...form.made.values };
  const writer = gradio(form, shows);
  let writing = false;

  const pressed = ({ target }) => {
    const id = writing ? null : idOf.get(target.closest?.(".f, #have")?.id);
    if (!id) return;
    if (target.matches(LIST)) { writer.typed(target); return; }
    const value = target.type === "checkbox" ? target.checked : target.type === "radio" ? plain(target.value) : target.value;
    shows[id] = value;
    if (target.matches(TEXT)) form.typed[id] = value;
    form.pick(id, value);
  };

  const write = (id) => {
    const value = form.values[id] ?? null;
    const input = !same(shows[id], value) && part(id, `${TEXT}, ${CHECK}`);
    if (!input) return;
    shows[id] = value;
    delete form.typed[id];
    writing = true;
    if (input.type !== "checkbox") putText(input, value ?? "");
    else if (input.checked !== Boolean(value)) input.click();
    writing = false;
  };

  window.factory.changed = writer.changed;
  window.factory.shown = writer.shown;
  window.factory.landed = writer.landed;
  document.addEventListener("input", pressed, true);
  document.addEventListener("beforeinput", ({ target }) => writer.restore(target), true);
  document.addEventListener("focusout", ({ target }) => writer.left(target), true);
  form.on("values", () => { ids.forEach(write); writer.ask(); });
  for (const one of window.factory.early()) one.target ? pressed(one) : writer.changed(one.id, one.value);
  for (const id of ids) if (part(id, TEXT)) name(id, form.made.widgets[id]);
}

/** A text field is called by its label alone, not by its whole help, and one for a number has the keys for it. */
function name(id, kind) {
  const input = part(id, TEXT);
  input.setAttribute("aria-label", part(id, "[data-testid=block-info]").firstChild.textContent.trim());
  if (kind === "number") input.inputMode = "decimal";
}

/** Whether every widget stands in the page: Gradio fetches its parts one after the other. */
export const isDrawn = (made) =>
  Object.entries(made.widgets).every(([id, kind]) => kind === "rows" || part(id, "input, textarea"));

/** The widgets that Gradio writes. A flight is what it was given and has not shown yet. */
function gradio(form, shows) {
  const flights = [];
  const handed = {};
  const typing = new WeakMap();
  let all = [];
  let isLate = false;
  let asked = 0;

  const isDue = (id) => {
    if (same(shows[id], form.values[id]) && !form.offers.fresh.has(id)) return false;
    if (!typing.has(part(id, LIST))) return true;
    isLate = true; // somebody is writing in it: its turn comes when they are done
    return false;
  };
  const ask = () => {
    if (all.length && !all.some(isDue)) return;
    count(1);
    window.factory.fill();
  };

  /** The page says while Gradio still has something to show. */
  const count = (more) => {
    asked += more;
    document.getElementById("content").toggleAttribute("data-filling", asked > 0);
  };

  const shown = (ids) => {
    all = ids;
    const flight = {};
    flights.push(flight);
    return all.map((id) => {
      if (!isDue(id)) return { __type__: "update" };
      const value = form.values[id] ?? null;
      flight[id] = shows[id] = value;
      handed[id] = { value, isTold: false, isLanded: false };
      form.offers.fresh.delete(id);
      const offered = form.offers[id];
      return { __type__: "update", value: offered ? value : held(value), ...(offered ? { choices: withOwn(offered, value) } : {}) };
    });
  };

  const restore = (input) => {
    if (document.activeElement === input && typing.has(input)) putText(input, typing.get(input));
  };

  /** Gradio has shown the oldest flight. Whatever somebody chose or wrote meanwhile comes back. */
  const landed = () => requestAnimationFrame(() => requestAnimationFrame(() => {
    for (const [id, value] of Object.entries(flights.shift() ?? {})) {
      shows[id] = value;
      handed[id].isLanded = true;
      restore(part(id, LIST));
    }
    ask();
    count(-1);
  }));

  /** A list tells what it shows now. That it shows what it was given is no choice of anybody's. */
  const changed = (id, told) => {
    const value = form.offers[id] ? told : plain(told);
    const last = handed[id];
    if (last && !last.isTold && same(last.value, value)) { last.isTold = true; return; }
    if (last?.isLanded) delete handed[id];
    shows[id] = value;
    form.pick(id, value);
  };

  const left = (input) => {
    if (!typing.delete(input) || !isLate) return;
    isLate = false;
    setTimeout(ask, UNTIL_TAKEN); // what was written may have become a choice
  };

  return { ask, shown, landed, changed, restore, left, typed: (input) => typing.set(input, input.value) };
}

const elementId = (id) => (id === "have" ? id : `f-${id.replaceAll(".", "-")}`);
const part = (id, selector) => document.getElementById(elementId(id))?.querySelector(selector) ?? null;

/** The choices, with the value itself where it is none of them. */
function withOwn(offered, value) {
  const values = Array.isArray(value) ? value : value ? [value] : [];
  const missing = values.filter((one) => !offered.some(([, id]) => id === one));
  return [...missing.map((one) => [one, one]), ...offered];
}
