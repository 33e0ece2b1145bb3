// What every page needs: words, elements without innerHTML, the REST API, and how numbers are written.
const { language, version } = window.factory;

const [english, own] = await Promise.all(
  [...new Set(["en", language])].map((name) => fetch(`/ui/text/${name}.json?v=${version}`).then((r) => r.json())),
);
const words = { ...english, ...own };
const locale = language === "zh" ? "zh-CN" : "en-GB";

/** A word in the reader's language, `{name}` filled from `values`; `key.one` where n is 1. A missing key is shown. */
export function t(key, values = {}) {
  const word = (values.n === 1 && words[`${key}.one`]) || (words[key] ?? key);
  return word.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** Whether some language has the word. */
export const has = (key) => key in words;

/** What is wrong, in the reader's language: by its code where there are words for it and for all that they name. */
export function sentence(finding) {
  const { code, field = "", message = "", params = {}, value } = finding;
  const missing = `finding.missing.${field}`;
  const key = code === "missing_field" && has(missing) ? missing : `finding.${code}`;
  const given = { ...params, ...(params?.reason && has(`reason.${params.reason}`) ? { reason: t(`reason.${params.reason}`) } : {}), field, message };
  if (value !== undefined && value !== null) given.value = quoted(value);
  const isTold = (name) => given[name] !== undefined && given[name] !== null && given[name] !== "";
  if (has(key) && [...words[key].matchAll(/\{(\w+)\}/g)].every(([, name]) => isTold(name))) return t(key, given);
  return message.replace(/ \(job\.yaml(, line \d+, column \d+)?\)(?=\.$)/, "");
}

/** A finding that stands under no field says which field it is about. */
export function told(finding) {
  const { code, field, message } = finding;
  if (language === "en" || !has(`finding.${code}`)) return message;
  const text = sentence(finding);
  return !field || text === message || words[`finding.${code}`].includes("{field}") ? text : `${field}：${text}`;
}

function quoted(value) {
  if (Array.isArray(value)) return value.map(quoted).join("、");
  return typeof value === "string" ? `“${value.slice(0, 200)}”` : JSON.stringify(value);
}

/** An element: `el("a.chip", {href, onclick, "data-x": 1}, "text", child, [children])`. Text is always text. */
export function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag || "div");
  if (classes.length) made.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

/** An SVG icon of one path, drawn in the colour of its text. */
export function icon(path, { size = 16, fill = false } = {}) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", width: size, height: size, "aria-hidden": "true" }))
    svg.setAttribute(key, value);
  line.setAttribute("d", path);
  const drawn = fill
    ? { fill: "currentColor" }
    : { fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round" };
  for (const [key, value] of Object.entries(drawn)) line.setAttribute(key, value);
  svg.append(line);
  return svg;
}

/** What the server refuses: `code`, `message`, `field`, `findings`, and the HTTP `status` (0: no answer). */
export class Refusal extends Error {
  constructor(status, error) {
    super(told({ params: error.findings?.[0]?.params, ...error }));
    Object.assign(this, { status, code: error.code, field: error.field, findings: error.findings ?? [], error });
  }
}

/** Ask the REST API: `api("/runs")`, `api("/jobs/check", {yaml})` (POST), `api("/runs/x", {title}, {method: "PATCH"})`. */
export async function api(path, body, options = {}) {
  const sent = body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(`/api${path}`, { ...sent, ...options });
  } catch (reason) {
    if (reason.name === "AbortError") throw reason;
    throw new Refusal(0, { code: "no_answer", message: t("board.offline") });
  }
  const read = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok)
    throw new Refusal(answer.status, read?.error ?? { code: "http", message: `${answer.status} ${answer.statusText}` });
  return read;
}

/** Call at most once in `wait` ms, with the last arguments. */
export function later(call, wait) {
  let timer;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => call(...args), wait); };
}

/** A line at the foot of the page for a moment, told to screen readers too: kind is "ok", "err" or "".
 * `way` = {label, act} is a button in it. */
export function toast(text, kind = "", way = null) {
  let place = document.querySelector(".toasts");
  if (!place) document.body.append((place = el("div.toasts", { role: "status", "aria-live": "polite" })));
  const line = el(`div.toast${kind ? `.${kind}` : ""}`, {}, text,
    way ? el("button.way", { type: "button", onclick: () => { line.remove(); way.act(); } }, way.label) : null);
  place.append(line);
  setTimeout(() => line.remove(), kind === "err" || way ? 9000 : 4500);
}

export const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString(locale, { maximumFractionDigits: digits });

/** A number of a curve: four figures, powers of ten where it is tiny or huge. */
export function figure(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return String(+value.toPrecision(4));
}

/** 1,234,567 -> 1.23 M. */
export function short(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e4]])
    if (value >= size) return `${+(value / (unit === "k" ? 1e3 : size)).toPrecision(3)} ${unit}`;
  return number(value);
}

/** Bytes in powers of 1024. */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (value >= 1000 && power < units.length - 1) { value /= 1024; power += 1; }
  return `${+value.toPrecision(power ? 3 : 4)} ${units[power]}`;
}

/** Seconds as people say them: 42 s, 5 min, 1 h 08 min, 2 d 3 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 600) return whole % 60 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${whole / 60} min`;
  if (whole < 3600) return `${Math.round(whole / 60)} min`;
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return `${hours} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });

/** How long ago a moment was: seconds since 1970, or an ISO text. */
export function ago(moment) {
  if (!moment) return "–";
  const then = typeof moment === "number" ? moment * 1000 : Date.parse(moment);
  const seconds = (then - Date.now()) / 1000;
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]])
    if (Math.abs(seconds) >= size) return relative.format(Math.round(seconds / size), unit);
  return relative.format(Math.round(seconds), "second");
}

/** Put the reader's words wherever data-t, data-t-title, data-t-label or data-t-placeholder asks for one. */
export function say(root) {
  const each = (name, put) => {
    for (const one of root.querySelectorAll(`[${name}]`)) put(one, t(one.getAttribute(name)));
  };
  each("data-t", (one, text) => { one.textContent = text; });
  each("data-t-title", (one, text) => { one.title = text; });
  each("data-t-label", (one, text) => { one.setAttribute("aria-label", text); });
  each("data-t-placeholder", (one, text) => { one.placeholder = text; });
}
