// The rail beside the form: whether it can start, what it will take, Start, and the job as YAML.
import { api, bytes, duration, el, number, sentence, short, t, toast } from "../base.js";
import { draftId, forget, renew } from "./draft.js";
import { elementOf, fixButton, jump, widgetOf } from "./marks.js";
import { editor } from "./text.js";

const COLOURS = { weights: "--c1", adapter: "--c2", optimizer: "--c3", gradients: "--c4", activations: "--c2", framework: "--c5" };
const MORE_COLOURS = ["--c6", "--c5", "--c4", "--c3"];

export function rail(form) {
  const chip = el("span.chip", { "data-testid": "verdict" });
  const facts = el("div.forecast", { "data-testid": "forecast" });
  document.getElementById("rail-top").append(
    el("div.pair.rail-head", {}, el("h2", {}, t("new.summary")), chip), facts);
  const slot = el("div.slot", { "data-testid": "form-findings" });
  const start = el("button.btn.primary.start", { type: "button", id: "start", "data-testid": "start" }, t("new.start"));
  const blocks = el("p.blocks", { id: "blocks", "data-testid": "blocks" });
  start.setAttribute("aria-describedby", "blocks");
  start.addEventListener("click", () => begin(form, start));
  addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); begin(form, start); }
  });
  document.getElementById("rail").append(slot, start, blocks, editor(form), terminal());

  const drawState = () => {
    const errors = form.errors();
    const begun = form.text.trim() !== "" || Boolean(form.held);
    const known = form.checked.text === form.text;
    const [kind, words] = !begun ? ["", "new.state.empty"]
      : errors.length ? ["err", errors.length === 1 ? "new.state.one" : "new.state.some"]
        : known ? ["ok", "new.state.ready"] : ["", "new.state.looking"];
    chip.className = `chip ${kind}`;
    chip.textContent = t(words, { count: errors.length });
    start.setAttribute("aria-disabled", String(!begun || errors.length > 0));
    blocks.className = begun ? "blocks" : "blocks calm";
    blocks.replaceChildren(...blocked(form, errors, begun));
    // A refused text says itself, beside it, why.
    slot.replaceChildren(...(form.held ? [] : form.all()).filter((one) => homeless(form, one)).map((one) =>
      el(`div.box.${{ error: "err", warning: "warn" }[one.level] ?? "note"}`, {}, sentence(one), fixButton(form, one))),
    ...(onlyTooLarge(errors) ? [el("button.btn.small", {
      type: "button", "data-testid": "anyway", onclick: () => begin(form, start, true),
    }, t("new.anyway"))] : []));
  };
  const drawFacts = () => facts.replaceChildren(...told(form));
  form.on("findings", drawState);
  form.on("plan", () => { drawFacts(); drawState(); });
  drawState();
  drawFacts();
  // A rail that is taller than the window sticks by its lower end.
  const side = document.querySelector(".new-page .side");
  new ResizeObserver(() => side.style.setProperty("--tall", `${side.offsetHeight}px`)).observe(side);
}

/** A forecast can be wrong; whoever knows better may start all the same. */
const onlyTooLarge = (errors) => errors.length > 0 && errors.every((one) => one.code.endsWith("memory_too_small"));

const homeless = (form, one) => one.code !== "missing_field" && !elementOf(widgetOf(form, one.field)) && !(one.field?.split("[")[0] in form.made.lists);

/** What stands between this form and a run, each a way to its field. */
function blocked(form, errors, begun) {
  if (!errors.length) return [];
  const links = errors.slice(0, 4).map((one) => {
    const name = nameOf(form, one);
    return el("button.link", { type: "button", onclick: () => jump(form, one.field), title: sentence(one) }, name);
  });
  const more = errors.length > links.length ? [t("new.blocks.more", { count: errors.length - links.length })] : [];
  const words = !begun ? "new.blocks.begin" : errors.length === 1 ? "new.blocks.one" : "new.blocks";
  return [t(words, { count: errors.length }), " ", ...joined([...links, ...more])];
}

const joined = (all) => all.flatMap((one, at) => (at ? [", ", one] : [one]));

function nameOf(form, finding) {
  const place = elementOf(widgetOf(form, finding.field));
  const label = place?.querySelector("[data-testid=block-info], .checkbox-container + span, label span")?.firstChild?.textContent?.trim();
  return label || finding.field || t("new.blocks.text");
}

function told(form) {
  const { plan } = form;
  const forecast = plan?.forecast;
  const counts = plan?.counts;
  const rows = [];
  if (forecast) rows.push(...memory(forecast));
  else rows.push(el("p.sub", { "data-testid": "no-forecast" }, t(form.text.trim() && form.checked.text === form.text && !plan ? "new.fact.unknown" : "new.fact.wait")));
  const fact = (key, value, title) => value === null || rows.push(el("div.pair", { title }, el("span", {}, t(key)), el("b", {}, value)));
  if (plan) {
    fact("new.fact.steps", plan.steps == null ? t("new.fact.uncounted") : number(plan.steps));
    fact("new.fact.tokens", forecast?.tokens == null ? null : short(forecast.tokens));
    fact("new.fact.time", forecast?.seconds == null ? null : t("new.fact.about", { time: duration(forecast.seconds) }),
      forecast?.runs ? t("new.fact.runs", { count: forecast.runs }) : t("new.fact.guess"));
    fact("new.fact.trained", forecast && plan.parameters
      ? t("new.fact.of", { some: short(forecast.trained), all: short(plan.parameters), share: percent(forecast.trained / plan.parameters) }) : null);
    if (counts) {
      fact("new.fact.rows", t("new.fact.kept", { kept: number(counts.read - counts.dropped), read: number(counts.read) }));
      if (counts.dropped) fact("new.fact.dropped", number(counts.dropped));
      if (counts.cut) fact("new.fact.cut", number(counts.cut));
      fact("new.fact.teach", percent(counts.tokens ? counts.trained_tokens / counts.tokens : 0));
    }
    fact("new.fact.disk", forecast ? bytes(forecast.disk_bytes) : null);
    if (form.isCounting) rows.push(el("div.counting", { role: "status" }, el("span.spin"), t("new.fact.counting")));
    else if (!counts) rows.push(el("button.btn.small.counter", { type: "button", "data-testid": "count", onclick: () => form.count() }, t("new.fact.count")));
  }
  return rows;
}

const percent = (share) => `${share >= 0.1 ? Math.round(share * 100) : +(share * 100).toPrecision(2)} %`;

function memory(forecast) {
  const parts = Object.entries(forecast.memory).filter(([, size]) => size > 0).sort((one, other) => other[1] - one[1]);
  const spare = [...MORE_COLOURS];
  const used = new Set();
  const colour = Object.fromEntries(parts.map(([name]) => {
    const own = COLOURS[name];
    const chosen = own && !used.has(own) ? own : spare.find((one) => !used.has(one)) ?? "--muted";
    used.add(chosen);
    return [name, chosen];
  }));
  const whole = Math.max(forecast.available, forecast.memory_total);
  const verdict = { tight: "warn", "too large": "err" }[forecast.verdict];
  const label = t("new.fact.memory_of", { some: bytes(forecast.memory_total), all: bytes(forecast.available) });
  const shown = parts.length ? parts : [["weights", forecast.memory_total]];
  return [
    el("div.pair", {}, el("span", {}, t("new.fact.memory")),
      el("b", {}, label, verdict ? el(`span.chip.${verdict}`, {}, t(`new.fact.${forecast.verdict.replace(" ", "_")}`)) : null)),
    el("div.bar", { role: "img", "aria-label": `${t("new.fact.memory")}: ${label}` },
      shown.map(([name, size]) => el("i", { style: `width:${(100 * size) / whole}%;background:var(${colour[name] ?? "--c1"})`, title: `${t(`memory.${name}`)} ${bytes(size)}` }))),
    el("div.leg", {}, parts.map(([name, size]) =>
      el("span", {}, el("i", { style: `background:var(${colour[name]})` }), `${t(`memory.${name}`)} ${bytes(size)}`))),
  ];
}

function terminal() {
  return el("p.sub.terminal", {}, t("new.terminal"), " ", el("code.mono", {}, "factory train job.yaml"));
}

async function begin(form, button, anyway = false) {
  if (button.dataset.busy) return;
  await form.busy;
  if (!(await form.settled())) return;
  if (form.checked.text !== form.text) await form.look();
  const errors = form.errors();
  if ((errors.length && !anyway) || !form.text.trim()) {
    if (errors.length) jump(form, errors[0].field);
    toast(t(errors.length === 1 ? "new.state.one" : "new.state.some", { count: errors.length }), "err");
    return;
  }
  button.dataset.busy = "true";
  button.replaceChildren(el("span.spin"), t("new.starting"));
  try {
    const { run } = await api("/jobs/submit", { yaml: form.text, draft: draftId(), anyway });
    forget();
    location.href = `/run?id=${encodeURIComponent(typeof run === "string" ? run : run.id)}`;
  } catch (refusal) {
    if (refusal.code === "draft_taken") renew(); // and whoever presses Start again means a run of its own
    form.checked = { findings: refusal.findings?.length ? refusal.findings : [{ code: refusal.code, level: "error", field: refusal.field ?? null, message: refusal.message }], text: form.text };
    form.tell("findings");
    toast(refusal.message, "err");
    delete button.dataset.busy;
    button.replaceChildren(t("new.start"));
  }
}
