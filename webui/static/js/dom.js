// What several pages need beside base.js: icons, menus, questions, and drawing no more often than the screen does.
import { el, icon, t } from "./base.js";

export const PATHS = {
  more: "M5 12h.01M12 12h.01M19 12h.01",
  down: "M12 4v11m0 0 4.5-4.5M12 15l-4.5-4.5M5 19.5h14",
  close: "M6 6l12 12M18 6 6 18",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 20 20",
  edit: "M4 20h4L19 9l-4-4L4 16v4zM13 7l4 4",
  chevron: "M7 10l5 5 5-5",
  check: "M5 12.5l4.5 4.5L19 7.5",
  warn: "M12 4 2.8 19.5h18.4L12 4zM12 10v4.5M12 17.1v.01",
  upload: "M12 16V5m0 0L7.5 9.5M12 5l4.5 4.5M5 19.5h14",
  file: "M6 3.5h8l4 4v13H6zM14 3.5v4h4",
  plus: "M12 5v14M5 12h14",
  play: "M8 5.5v13l10.5-6.5z",
  pin: "M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v5.5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
};

/** One of our icons by its name. */
export const sign = (name, size = 16) => icon(PATHS[name], { size });

/** Puts new children into an element; text stays text. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** Sets the text only when it changes: a selection and a screen reader are not disturbed for nothing. */
export function put(element, text) {
  const now = String(text ?? "");
  if (element.textContent !== now) element.textContent = now;
  return element;
}

/** A function that runs at most once per animation frame, however often it is asked. */
export function eachFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/** A query string of the values that are set, with its question mark. */
export function query(values) {
  const set = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

/** Whether a key press belongs to a field rather than to the page. */
export const typing = (event) =>
  event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, [contenteditable], dialog");

let open = null;

/** A menu under a button: items are {label, run, danger?, disabled?} or null for none, or a promise of them. */
export function menuButton(label, items, attributes = {}, ...face) {
  const button = el("button.btn", { type: "button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-label": label, ...attributes }, face);
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    if (open?.button === button) return close();
    const made = items();
    show(button, Array.isArray(made) ? made : await made);
    return undefined;
  });
  return button;
}

function show(button, items) {
  close();
  if (!button.isConnected) return;
  const menu = el("div.menu", { role: "menu" }, items.filter(Boolean).map((item) =>
    el(`button.item${item.danger ? ".danger" : ""}`, {
      type: "button", role: "menuitem", disabled: item.disabled,
      onclick: () => { close(); item.run(); },
    }, el("span", {}, item.label), item.about ? el("small", {}, item.about) : null)));
  document.body.append(menu);
  const place = button.getBoundingClientRect();
  const left = Math.min(place.right - menu.offsetWidth, window.innerWidth - menu.offsetWidth - 8);
  const below = place.bottom + menu.offsetHeight + 6 < window.innerHeight;
  menu.style.left = `${Math.max(8, left) + window.scrollX}px`;
  menu.style.top = `${(below ? place.bottom + 4 : place.top - menu.offsetHeight - 4) + window.scrollY}px`;
  button.setAttribute("aria-expanded", "true");
  open = { button, menu };
  menu.querySelector("button:not(:disabled)")?.focus();
  menu.addEventListener("keydown", (event) => {
    const all = [...menu.querySelectorAll("button:not(:disabled)")];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to !== undefined) all[(to + all.length) % all.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") close(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

function close(back = false) {
  if (!open) return;
  open.menu.remove();
  open.button.setAttribute("aria-expanded", "false");
  if (back) open.button.focus();
  open = null;
}
document.addEventListener("click", (event) => open && !open.menu.contains(event.target) && close());
window.addEventListener("resize", () => close());

/** Asks before something is done. Resolves to false, or to true (or to the fields' values where there are fields);
 * to "other" where there is another way to do it, and that was chosen. */
export function ask({ title, text, yes, other = null, danger = false, fields = [] }) {
  return new Promise((resolve) => {
    const inputs = fields.map((one) => el(one.long ? "textarea.field" : "input.field", { id: `ask-${one.name}`, name: one.name, value: one.value ?? "", maxlength: one.most, rows: one.long ? 5 : null, placeholder: one.placeholder, autocomplete: "off" }));
    const form = el("form", { method: "dialog" },
      el("h2", { id: "ask-heading" }, title),
      text ? el("p.sub", {}, text) : null,
      fields.map((one, at) => el("label.ask-field", { for: `ask-${one.name}` }, el("span", {}, one.label), inputs[at])),
      el("div.btns", {},
        el("button.btn", { type: "button", value: "no", onclick: () => dialog.close("no") }, t("ask.cancel")),
        other ? el("button.btn.danger", { type: "button", "data-testid": "ask-other", onclick: () => dialog.close("other") }, other) : null,
        el(`button.btn.${danger ? "danger.solid" : "primary"}`, { type: "submit", value: "yes", "data-testid": "ask-yes" }, yes)));
    const dialog = el("dialog.ask", { "aria-labelledby": "ask-heading", "data-testid": "ask" }, form);
    document.body.append(dialog);
    dialog.addEventListener("close", () => {
      dialog.remove();
      const values = Object.fromEntries(fields.map((one, at) => [one.name, inputs[at].value]));
      resolve(dialog.returnValue === "other" ? "other" : dialog.returnValue === "yes" && (fields.length ? values : true));
    });
    form.addEventListener("submit", () => { dialog.returnValue = "yes"; });
    dialog.showModal();
    inputs[0]?.select?.();
  });
}

/** A new draft's name (a UUID): what is sent twice under one name starts one run. */
export function draft() {
  const bytes = crypto.getRandomValues(new Uint8Array(16)); // randomUUID is missing over http from another host
  bytes[6] = (bytes[6] & 15) | 64;
  bytes[8] = (bytes[8] & 63) | 128;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
