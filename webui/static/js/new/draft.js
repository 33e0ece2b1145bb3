// Where a job begins (a copied run, a recipe, a file, the draft) and how the draft outlives a reload.
import { api, toast } from "../base.js";

const KEY = "factory-draft";

function stored() {
  try { return JSON.parse(localStorage.getItem(KEY)) ?? {}; } catch { return {}; }
}

function store(draft) {
  try { localStorage.setItem(KEY, JSON.stringify(draft)); } catch { /* private windows keep nothing */ }
}

let id = null;

/** The id under which this draft starts at most one run, in however many windows. */
export const draftId = () => id;

/** Another id for the same text: it was started before, as another job. */
export const renew = () => { id = uuid(); };

export function remember(form) {
  let known = stored().text;
  id = stored().id;
  form.on("text", () => {
    if (form.text === known && id) return;
    known = form.text;
    id = uuid();
    store({ text: form.text, have: form.values.have, id });
  });
}

/** A random UUID; the browser's own function is only there on https and on this machine itself. */
function uuid() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

export const forget = () => { try { localStorage.removeItem(KEY); } catch { /* nothing kept */ } };

export async function beginning(form) {
  const asked = new URLSearchParams(location.search);
  const draft = stored();
  form.values.have = draft.have ?? null;
  const begun = await text(asked).catch((refusal) => { toast(refusal.message, "err"); return null; });
  form.open();
  try {
    await form.fill(begun ?? draft.text ?? "");
  } catch (refusal) {
    toast(refusal.message, "err");
    await form.busy;
    if (!form.text) await form.fill("");
  }
  if ([...asked.keys()].length) history.replaceState(null, "", location.pathname);
  if (asked.get("data")) form.tell("data-chosen");
}

async function text(asked) {
  if (asked.get("from")) return (await api(`/runs/${encodeURIComponent(asked.get("from"))}/copy`)).yaml;
  if (asked.get("preset")) {
    const { recipes } = await api("/recipes");
    return recipes.find((one) => one.name === asked.get("preset"))?.yaml;
  }
  if (asked.get("yaml")) return asked.get("yaml"); // a page that has more to say than a path
  if (asked.get("data")) return (await api("/jobs/form", { yaml: "", changes: { data: [asked.get("data")] } })).yaml;
  return null;
}
