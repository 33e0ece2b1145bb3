// The first rows as the model sees them: every token coloured by what happens to it.
import { api, el, number, sentence, t } from "../base.js";
import { fill } from "../dom.js";
import { textOr } from "../words.js";

const KINDS = ["learnt", "read", "cut", "padding"];
const LABEL = { learnt: "data.learnt", read: "data.read_only", cut: "data.cut", padding: "data.padding" };
const COUNT = 3;

export class Rows {
  constructor(file) {
    this.file = file;
    const asked = new URLSearchParams(location.search);
    this.model = el("input.field", { list: "known-models", value: asked.get("model") ?? "smollm2-135m", "aria-label": t("data.model"), "data-testid": "row-model", autocomplete: "off" });
    this.known = el("datalist", { id: "known-models" });
    this.longest = el("input.field", { type: "number", min: 8, max: 131072, step: 1, placeholder: "2048", value: asked.get("max_length") ?? "", "aria-label": t("data.max_length"), "data-testid": "row-length" });
    this.go = el("button.btn", { type: "button", "data-testid": "show-rows", onclick: () => this.load() }, t("data.show_rows"));
    this.stage = el("select.field", { "aria-label": t("data.for") });
    this.place = el("div.token-rows", { "data-testid": "token-rows" });
    this.element = el("section.card", { "aria-label": t("data.rows") }, el("h2", {}, t("data.rows")), el("p.sub", {}, t("data.rows_text")),
      el("div.row-tools", {}, el("label", {}, t("data.for"), this.stage), el("label", {}, t("data.model"), this.model, this.known), el("label", {}, t("data.max_length"), this.longest), this.go),
      el("div.leg.token-legend", {}, KINDS.map((kind) => el("span", {}, el(`i.token-${kind}`), t(LABEL[kind])))), this.place);
  }

  show(stage, fits) {
    const chosen = fits.includes(this.stage.value) ? this.stage.value : stage;
    fill(this.stage, fits.map((one) => el("option", { value: one, selected: one === chosen }, textOr(`stage.${one}`, one))));
    if (this.asked) return;
    this.asked = true;
    api("/models").then(({ models }) => fill(this.known, models.filter((one) => one.kind !== "adapter").map((one) => el("option", { value: one.where }))), () => {});
    // Reading with a tokenizer takes seconds of the processor: only when somebody looks.
    const seen = new IntersectionObserver(([entry]) => {
      if (!entry.isIntersecting) return;
      seen.disconnect();
      if (!this.turn) this.load();
    });
    seen.observe(this.element);
  }

  async load() {
    const turn = (this.turn = (this.turn ?? 0) + 1);
    fill(this.place, el("p.sub", { role: "status" }, el("span.spin"), " ", t("data.counting")));
    try {
      const body = { data: this.file.spec(), model: this.model.value, stage: this.stage.value, count: COUNT };
      if (this.longest.value) body.max_length = Number(this.longest.value);
      const told = await api("/data/preview", body);
      if (turn !== this.turn) return;
      fill(this.place, told.findings.filter((one) => one.code === "data_learnt_share" || one.level !== "note").map((one) => el(`p.box${one.level === "error" ? ".err" : one.level === "warning" ? ".warn" : ""}`, {}, sentence(one))), told.rows.map((row) => this.row(row)));
    } catch (reason) {
      if (turn === this.turn) fill(this.place, el("p.box.err", { role: "alert" }, reason.message));
    }
  }

  row({ line, sequences }) {
    return el("article.token-row", {}, el("h3", {}, t("data.row", { line: number(line) })), el("div", { class: sequences.length > 1 ? "two" : "one" }, sequences.map((one) => el("div", {},
      el("p.sub", {}, sequences.length > 1 || one.name === "prompt" ? `${textOr(`data.side.${one.name}`, one.name)} · ` : "", t("data.n_tokens", { n: number(one.length) })),
      el("div.tokens", { tabindex: "0", role: "group", "aria-label": t("data.rows") }, one.tokens.map((token) => el(`span.token-${KINDS.includes(token.mask) ? token.mask : "read"}`, { title: `${token.id} · ${t(LABEL[token.mask] ?? "data.read_only")}` }, shown(token.text))))))));
  }
}

/** Line breaks and lone spaces as people can see them. */
const shown = (text) => text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥") || "∅";
