// One file: what it holds as pictures, which training it fits, its columns, and its first rows token by token.
import { api, el, later, number, sentence, t } from "../base.js";
import { fill, query, sign } from "../dom.js";
import { lastPart, percent, textOr } from "../words.js";
import { Rows } from "./rows.js";

const STAGES = ["sft", "pretrain", "dpo", "reward", "orpo", "kto", "grpo", "rloo", "ppo"];
// Our words for columns, by the stage that needs them (the row shapes of data/rows.py).
const WORDS = {
  pretrain: ["text"], sft: ["messages", "prompt", "completion", "text", "system"], reward: ["prompt", "chosen", "rejected"], dpo: ["prompt", "chosen", "rejected"],
  orpo: ["prompt", "chosen", "rejected"], kto: ["prompt", "completion", "label"], grpo: ["prompt", "answer"], rloo: ["prompt", "answer"], ppo: ["prompt"],
};

export class DataFile {
  constructor(root, path) {
    this.root = root;
    this.path = path;
    this.columns = {};
    this.stage = "";
    this.body = root.querySelector(".body");
    fill(root.querySelector(".head > div"), el("p.crumb", {}, el("a", { href: "/data" }, t("data.all"))), el("h1", { "data-testid": "file-title" }, lastPart(path)), el("p.lead.mono", {}, path));
    this.train = el("a.btn.primary", { "data-testid": "train-on-it" }, t("data.train"));
    fill(root.querySelector(".btns"), this.train);
    this.report = el("div.body-part");
    this.rows = new Rows(this);
    this.again = later(() => this.inspect(), 250);
  }

  async begin() {
    document.title = `${lastPart(this.path)} · Factory`;
    fill(this.body, this.report);
    await this.inspect();
  }

  /** The data part of a job, short where it can be. */
  spec() {
    const set = Object.fromEntries(Object.entries(this.columns).filter(([, name]) => name));
    return Object.keys(set).length ? { path: this.path, columns: set } : { path: this.path };
  }

  yaml() {
    const { path, columns } = this.spec();
    const quoted = (text) => (/^[\w./-]+$/.test(text) && !/^(true|false|null|yes|no|on|off|[\d.+-].*)$/i.test(text) ? text : JSON.stringify(text));
    if (!columns) return `data: ${quoted(path)}`;
    return ["data:", `  path: ${quoted(path)}`, "  columns:", ...Object.entries(columns).map(([word, name]) => `    ${word}: ${quoted(name)}`)].join("\n");
  }

  async inspect() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    if (!this.told) fill(this.report, el("section.card.list.loading", { role: "status" }, el("p.sub", {}, el("span.spin"), " ", t("data.looking"))));
    let told = null;
    let refused = null;
    try {
      told = await api("/data/inspect", { data: this.spec(), ...(this.stage ? { stage: this.stage } : {}) });
    } catch (reason) {
      refused = reason;
    }
    if (turn !== this.turn) return;
    this.told = told ?? this.told;
    this.names = told?.names ?? this.names ?? namesIn(refused);
    this.draw(told, refused);
  }

  draw(told, refused) {
    const fits = told ? STAGES.filter((stage) => told.stages[stage] === true) : [];
    this.shownStage = this.stage || fits[0] || "sft";
    this.train.href = `/new${query({ yaml: `${this.yaml()}\nstage: ${this.shownStage}\n` })}`;
    const columns = this.mapping(told);
    fill(this.report,
      refused ? el("div.box.err", { role: "alert", "data-testid": "refused" }, el("b", {}, t("data.bad")), el("p", {}, refused.message)) : null,
      told ? this.facts(told) : null,
      told ? el("div.data-grid", {}, this.lengths(told), this.dropped(told), this.labels(told)) : null,
      el("div.data-grid", {}, told ? this.stages(told) : null, columns),
      told && fits.length ? this.rows.element : null);
    if (told && fits.length) this.rows.show(this.shownStage, fits);
  }

  facts(told) {
    const dropped = told.read - told.kept;
    const unit = told.lengths.unit === "tokens" ? "data.tokens" : "data.characters";
    const tile = (label, value, below = "", look = "") => el("div.tile", {}, el("div.k", {}, label), el("div.v", {}, value), el(`div.d${look ? `.${look}` : ""}`, {}, below));
    return el("div", {},
      el("div.tiles", { "data-testid": "facts" },
        tile(t("data.format"), told.format.replaceAll("_", " "), t("data.sure", { share: percent(told.sure) })),
        tile(t("data.read"), number(told.read), told.files.length > 1 ? `${told.files.length} × ${told.files[0].kind}` : told.files[0]?.kind ?? ""),
        tile(t("data.kept"), number(told.kept), told.read ? percent(told.kept / told.read) : ""),
        tile(t("data.dropped"), number(dropped), "", dropped ? "bad" : ""),
        tile(t("data.duplicates"), number(told.duplicates)),
        tile(t("data.length"), number(told.lengths.median ?? null), t(unit, { n: "" }).trim())),
      el("div.findings", {}, told.findings.filter((one) => one.code !== "data_rows_dropped" && one.code !== "data_label_balance").map((one) =>
        el(`div.box${one.level === "error" ? ".err" : one.level === "warning" ? ".warn" : ""}`, { "data-testid": "finding" }, sentence(one)))));
  }

  lengths({ lengths }) {
    const bins = (lengths.bins ?? []).filter(([, , count], at, all) => count || all.slice(at).some(([, , later]) => later));
    const first = bins.findIndex(([, , count]) => count);
    const shown = first > 0 ? bins.slice(first) : bins;
    const most = Math.max(1, ...shown.map(([, , count]) => count));
    return el("section.card", { "aria-label": t("data.lengths") }, el("h2", {}, t("data.lengths")),
      el("div.bars", { role: "img", "aria-label": `${t("data.lengths")}: ${shown.map(([low, high, count]) => `${low}–${high} ${count}`).join(", ")}` },
        shown.map(([low, high, count]) => el("div.col", { title: `${number(low)} – ${number(high)} ${t(`data.unit.${lengths.unit}`)}: ${number(count)}` }, el("span.n", {}, count ? number(count) : ""), el("i", { style: `height:${Math.max(count ? 2 : 0, (110 * count) / most)}px` }), el("span.x", {}, `${number(low)}–${number(high)}`)))),
      el("p.sub", {}, t("data.lengths_text", { shortest: number(lengths.shortest), median: number(lengths.median), p99: number(lengths.p99), longest: number(lengths.longest), unit: t(`data.unit.${lengths.unit}`) })),
      lengths.over_max_length ? el("div.box.warn", {}, t("data.over", { n: number(lengths.over_max_length), limit: number(lengths.max_length) })) : null);
  }

  dropped(told) {
    const gone = Object.entries(told.reasons).sort(([, a], [, b]) => b - a);
    const words = Object.fromEntries(told.findings.filter((one) => one.code === "data_rows_dropped").map((one) => [one.params.reason, sentence(one)]));
    const share = told.read ? told.kept / told.read : 1;
    return el("section.card", { "aria-label": t("data.why_dropped"), "data-testid": "dropped" }, el("h2", {}, gone.length ? t("data.why_dropped") : t("data.kept")),
      el("div.bar.thick.stack", { role: "img", "aria-label": `${t("data.kept")} ${percent(share)}` }, el("i.ok", { style: `width:${100 * share}%` }), el("i.err", { style: `width:${100 * (1 - share)}%` })),
      gone.length ? el("ul.reasons", {}, gone.map(([reason, count]) => el("li", {}, el("b", {}, number(count)), " ", words[reason] ?? reason,
        el("div.lines", {}, (told.examples[reason] ?? []).slice(0, 5).map((one) => el("div.example", {}, el("span.tag", {}, t("data.line", { n: number(one.line) })), one.text ? el("code", {}, one.text.slice(0, 160)) : null)))))) : el("p.sub", {}, t("data.all_kept")));
  }

  labels(told) {
    const good = told.labels.good ?? 0;
    const bad = told.labels.bad ?? 0;
    if (!good && !bad) return null;
    const share = good / (good + bad);
    return el("section.card", { "aria-label": t("data.labels") }, el("h2", {}, t("data.labels")),
      el("div.bar.thick.stack", { role: "img", "aria-label": `${t("data.good")} ${percent(share)}` }, el("i.ok", { style: `width:${100 * share}%` }), el("i.warn", { style: `width:${100 * (1 - share)}%` })),
      el("div.pair.under", {}, el("span", {}, `${t("data.good")} `, el("b", {}, number(good))), el("span", {}, `${t("data.bad_label")} `, el("b", {}, number(bad)))));
  }

  stages(told) {
    return el("section.card", { "aria-label": t("data.stages"), "data-testid": "stages" }, el("h2", {}, t("data.stages")), el("ul.fits", {}, STAGES.map((stage) => {
      const fits = told.stages[stage] === true;
      return el(`li${fits ? ".yes" : ""}`, {}, el("span.mark", { "aria-hidden": "true" }, fits ? sign("check", 13) : null), el("span.what", {}, textOr(`stage.${stage}`, stage)), el("span.sub", {}, fits ? t("data.fits") : told.stages[stage] ? textOr(`data.unfit.${stage}`, told.stages[stage]) : "–"));
    })));
  }

  /** Which column is which, by dropdowns, and the YAML that says so. */
  mapping(told) {
    const names = this.names ?? [];
    const stage = this.shownStage;
    const words = [...new Set([...Object.keys(told?.columns ?? {}), ...WORDS[stage], ...Object.keys(this.columns)])].filter((word) => word !== "border");
    const stageChoice = el("select.field", { "data-testid": "data-stage", onchange: () => { this.stage = stageChoice.value; this.inspect(); } }, STAGES.map((one) => el("option", { value: one, selected: one === stage }, textOr(`stage.${one}`, one))));
    return el("section.card", { "aria-label": t("data.columns"), "data-testid": "columns" }, el("h2", {}, t("data.columns")), el("p.sub", {}, t("data.columns_text")),
      el("div.map", {}, el("label", {}, el("span", {}, t("data.for")), stageChoice),
        names.length ? words.map((word) => {
          const found = told?.columns?.[word];
          const choice = el("select.field", { "data-testid": `column-${word}`, onchange: () => { this.columns[word] = choice.value; this.stage = this.shownStage; this.inspect(); } },
            el("option", { value: "" }, found && !this.columns[word] ? `${found} (${t("data.auto")})` : t("data.auto")), names.map((name) => el("option", { value: name, selected: name === this.columns[word] }, name)));
          return el("label", {}, el("span.mono", {}, word), choice);
        }) : null),
      el("h3", {}, t("data.yaml")), el("pre.yaml", { tabindex: "0", "data-testid": "data-yaml" }, this.yaml()));
  }
}

/** When no format fits, the refusal still names the columns. */
function namesIn(refused) {
  const found = refused?.findings?.find((one) => Array.isArray(one.value)) ?? (Array.isArray(refused?.error?.value) ? refused.error : null);
  return found ? found.value.filter((one) => typeof one === "string") : [];
}
