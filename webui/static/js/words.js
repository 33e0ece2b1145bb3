// What happens in a run, said in words: states, events, settings, times of the clock.
import { duration, el, has, number, t, told } from "./base.js";

const LOOKS = { queued: "", starting: "run", running: "run", stopping: "warn", stopped: "warn", succeeded: "ok", failed: "err", lost: "err" };
export const ENDED = new Set(["stopped", "succeeded", "failed", "lost"]);
export const ALIVE = new Set(["queued", "starting", "running", "stopping"]);

/** The state of a run as a coloured word. */
export const chip = (state) =>
  el(`span.chip${LOOKS[state] ? `.${LOOKS[state]}` : ""}`, { "data-testid": "state", "data-state": state },
    state === "running" || state === "starting" || state === "stopping" ? el("i.pulse", { "aria-hidden": "true" }) : null, textOr(`state.${state}`, state));

/** A word when there is one for the key, else `otherwise`. */
export const textOr = (key, otherwise) => (has(key) ? t(key) : otherwise);

/** The name of a metric for people: "Evaluation loss" for eval_loss. */
export function metricName(name) {
  if (has(`metric.${name}`)) return t(`metric.${name}`);
  if (name.startsWith("eval_")) return t("metric.eval", { name: metricName(name.slice(5)) });
  const part = /^reward\/(.+)\/(mean|std)$/.exec(name);
  if (part) return t(`metric.reward_part_${part[2]}`, { name: part[1] });
  return name;
}

/** SFT · LoRA */
export const kind = (stage, method) => [stage && textOr(`stage.${stage}`, stage), method && textOr(`method.${method}`, method)].filter(Boolean).join(" · ");

/** The last part of a path, which is what people call a model or a file. */
export const lastPart = (path) => String(path ?? "").replace(/\/+$/, "").split("/").pop() || "–";

/** The whole date and time in the browser's way. */
export const moment = (seconds) =>
  seconds ? new Date(seconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" }) : "–";

/** The time of day, with the weekday when it is not today. */
export function clock(seconds, precise = false) {
  const when = new Date(seconds * 1000);
  const today = when.toDateString() === new Date().toDateString();
  return when.toLocaleString(undefined, {
    hour: "2-digit", minute: "2-digit", ...(precise ? { second: "2-digit" } : {}), ...(today ? {} : { weekday: "short" }),
  });
}

/** 62 % */
export const percent = (share) => `${Math.floor(100 * Math.max(0, Math.min(1, share)))} %`;

/** 5.1 GiB without more digits than anybody reads. */
export const gib = (bytes) => (bytes === null || bytes === undefined ? "–" : `${number(bytes / 2 ** 30, bytes < 10 * 2 ** 30 ? 1 : 0)} GiB`);

/** A setting's value as the YAML has it. */
export function settingText(value) {
  if (value === null || value === undefined) return "–";
  if (value === true || value === false) return String(value);
  if (typeof value === "number") return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential().replace("e-0", "e-") : String(value);
  if (typeof value === "string") return value === "" ? "“”" : JSON.stringify(value).slice(1, -1);
  return JSON.stringify(value);
}

/** A dotted name that may break behind a dot or an underscore. */
export const breakable = (name) => name.split(/(?<=[._])/).flatMap((part) => [part, el("wbr")]);

/** Plain settings with dotted names: {"train.learning_rate": 1e-3, ...}; empty lists and objects stay values. */
export function dotted(values, before = "") {
  const found = {};
  for (const [key, value] of Object.entries(values ?? {})) {
    const name = before ? `${before}.${key}` : key;
    if (value && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length) Object.assign(found, dotted(value, name));
    else found[name] = value;
  }
  return found;
}

/** What is being done: the run's own words are English and name the model; other readers have ours. */
export const phaseWords = (phase) => (window.factory.language === "en" ? phase.text || textOr(`phase.${phase.name}`, phase.name) : textOr(`phase.${phase.name}`, phase.text));

/** Why a run is in its state: by the reason's code, or the fault's, where the reader's language has words for it. */
export const reasonWords = ({ reason, why, card }) => (reason ? told({ code: why?.code ?? card?.code, params: why?.params, value: why?.params?.value, field: why?.params?.field ?? null, message: reason }) : "");

/** An event as {level, text, hint?}, or null for one that is shown elsewhere (metrics, samples). */
export function eventWords(event) {
  const say = {
    state: () => ({ level: LOOKS[event.state] || "", text: t(`event.${event.state}`, { attempt: event.attempt }) + (event.reason ? ` ${reasonWords({ reason: event.reason, why: event })}` : "") }),
    ready: () => null,
    phase: () => ({ level: "", text: phaseWords(event) }),
    start: () => ({ level: "run", text: t("event.start", { steps: number(event.total_steps), rows: number(event.rows), trainable: number(event.trainable), parameters: number(event.parameters), device: event.device }) }),
    checkpoint: () => ({ level: "ok", text: t("event.checkpoint", { step: number(event.step), seconds: duration(event.seconds ?? null) }) }),
    warning: () => ({ level: event.level === "note" ? "" : "warn", text: told(event), field: event.field, hint: has(`hint.${event.code}`) ? t(`hint.${event.code}`) : null }),
    error: () => ({ level: "err", text: told(event), field: event.field }),
    done: () => ({ level: "ok", text: t("event.done") }),
  }[event.event];
  return say ? say() : null;
}
