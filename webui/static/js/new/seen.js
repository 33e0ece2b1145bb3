// What a look at the chosen files tells: rows, what they are taken for, the stages they suit, and their columns.
import { api, el, later, number, sentence, t } from "../base.js";
import { textOr } from "../words.js";
import { same } from "./typed.js";

const SURE = 0.75;
const WORDS = {
  text: ["text"], messages: ["messages"], completion: ["prompt", "completion"],
  preference: ["prompt", "chosen", "rejected"], feedback: ["prompt", "completion", "label"], prompt: ["prompt", "answer"],
};
const LIKED = ["sft", "pretrain", "dpo", "kto", "grpo"];

export function seen(form) {
  const place = document.getElementById("seen");
  let asked = null;
  let report = null;
  let proposing = false;
  let open = false;

  const look = later(async () => {
    if (!form.data) return;
    const question = { data: form.data, stage: form.kinds.stage ?? undefined };
    try {
      const told = await api("/data/inspect", question);
      if (!same(question.data, form.data)) return;
      report = told;
    } catch (refusal) {
      report = { refusal }; // the field says it: the check finds the same
    }
    draw();
    if (proposing) propose();
  }, 300);

  const follow = () => {
    const question = [form.data, form.kinds.stage];
    if (same(question, asked)) return;
    if (!same(question[0], asked?.[0])) report = null;
    asked = question;
    if (!form.data) { report = null; place.replaceChildren(); return; }
    if (!report) place.replaceChildren(el("div.seen", { role: "status" }, el("div.seen-row", {}, el("span.spin"), t("new.seen.looking"))));
    look();
  };

  /** A file just came: the stage follows what it holds. */
  const propose = () => {
    proposing = false;
    const fitting = suited(report);
    if (report.files?.[0]) form.values.have = report.files[0].shape;
    if (fitting.length && !fitting.includes(form.kinds.stage)) form.change({ stage: fitting[0] }, { fill: true });
    else { form.tell("values"); form.tell("kinds"); }
  };

  const draw = () => {
    if (!report || report.refusal) { place.replaceChildren(); return; }
    const fitting = suited(report);
    const why = report.stages?.[form.kinds.stage];
    const shape = report.files?.[0]?.shape;
    const unsure = (report.sure ?? 1) < SURE;
    place.replaceChildren(el("div.seen", { "data-testid": "seen" },
      el("div.seen-row", {},
        el("b", {}, t("new.seen.rows", { rows: number(report.kept ?? report.read) })),
        shape ? el("span", {}, t("new.seen.as", { shape: t(`shape.${shape}`).split("\n")[0].toLowerCase() })) : null,
        fitting.length ? el("span", {}, `${t("new.seen.suits")} `, fitting.map((one) => t(`kind.stage.${one}`).split("\n")[0]).join(", ")) : null,
        form.values.data?.length === 1 ? el("a", { href: `/data?file=${encodeURIComponent(form.values.data[0])}` }, t("new.seen.preview")) : null),
      typeof why === "string" && fitting.length ? el("div.box.warn", {}, t("new.seen.unfit", { stage: t(`kind.stage.${form.kinds.stage}`).split("\n")[0], why: textOr(`data.unfit.${form.kinds.stage}`, why) }), " ",
        el("button.fix", { type: "button", "data-testid": "use-stage", onclick: () => form.change({ stage: fitting[0] }, { fill: true }) }, t("new.seen.use", { stage: t(`kind.stage.${fitting[0]}`).split("\n")[0] }))) : null,
      unsure ? el("div.box.warn", { "data-testid": "unsure" }, t("new.seen.unsure")) : null,
      (report.findings ?? []).filter((one) => one.level !== "note").map((one) => el("div.box.warn", {}, sentence(one))),
      columns(shape, unsure)));
  };

  const columns = (shape, unsure) => {
    const names = report.names ?? [];
    if (!names.length || !WORDS[shape]) return null;
    const words = [...new Set([...WORDS[shape], ...Object.keys(report.columns ?? {})])];
    const details = el("details", { open: unsure || open, "data-testid": "columns", ontoggle: (event) => { open = event.target.open; } },
      el("summary", {}, t("new.seen.columns")),
      el("div.columns", {}, words.flatMap((word) => {
        const id = `column-${word}`;
        return [el("label", { for: id }, t(`word.${word}`)),
          el("select.field", { id, onchange: (event) => choose(word, event.target.value) },
            el("option", { value: "" }, t("new.seen.none")),
            names.map((name) => el("option", { value: name, selected: report.columns?.[word] === name }, name)))];
      })));
    return details;
  };

  const choose = (word, name) => {
    const now = { ...(form.data.columns ?? {}) };
    if (name) now[word] = name;
    else delete now[word];
    form.apply({ "data.columns": Object.keys(now).length ? now : null });
  };

  form.on("text", follow);
  form.on("data-chosen", () => { if (report && same(asked?.[0], form.data) && !report.refusal) propose(); else proposing = true; });
}

function suited(report) {
  const rank = (name) => (LIKED.indexOf(name) < 0 ? LIKED.length : LIKED.indexOf(name));
  return Object.entries(report.stages ?? {}).filter(([, fits]) => fits === true).map(([name]) => name).sort((one, other) => rank(one) - rank(other));
}
