// What is on this machine to start from, and what was trained here.
import { ago, api, bytes, el, t, toast } from "./base.js";
import { ask, fill, query, sign } from "./dom.js";
import { moment } from "./words.js";

const KINDS = ["result", "adapter", "base"];

/** Fill the page. */
export async function start(root) {
  const page = new ModelsPage(root, await api("/features").catch(() => ({})));
  await page.load();
}

class ModelsPage {
  constructor(root, features) {
    this.root = root;
    this.features = features;
    this.body = root.querySelector(".body");
    fill(root.querySelector(".btns"), el("a.btn.primary", { href: "/new" }, sign("plus", 15), t("nav.new")));
  }

  async load() {
    const { models } = await api("/models");
    if (!models.length) {
      fill(this.body, el("section.card.empty", {}, el("h2", {}, t("models.none")), el("p.sub", {}, t("models.none_text")), el("p.actions", {}, el("a.btn.primary", { href: "/new" }, t("nav.new")))));
      return;
    }
    fill(this.body, KINDS.map((kind) => this.group(kind, models.filter((one) => one.kind === kind))));
  }

  group(kind, models) {
    if (!models.length) return null;
    const rows = models.sort((a, b) => (b.created ?? 0) - (a.created ?? 0)).map((one) => this.row(one));
    return el("section.card", { "aria-label": t(`models.${kind}`), "data-testid": `models-${kind}` }, el("h2", {}, t(`models.${kind}`)), el("p.sub", {}, t(`models.${kind}_text`)),
      el("div.scroll", { tabindex: "0", role: "group", "aria-label": t(`models.${kind}`) }, el("table.t", {}, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, t("runs.name")), el("th.wide", { scope: "col" }, t("models.from")), el("th.num", { scope: "col" }, t("side.size")), el("th.wide", { scope: "col" }, t("models.made")), el("th.do", { scope: "col" }, el("span.hide", {}, t("runs.actions"))))),
        el("tbody", {}, rows))));
  }

  row(model) {
    const use = model.kind === "adapter" && model.base ? `model:\n  name: ${JSON.stringify(model.base)}\n  adapter: ${JSON.stringify(model.where)}\n` : `model: ${JSON.stringify(model.where)}\n`;
    return el("tr", { "data-model": model.id },
      el("td", {}, el("div.strong", {}, model.name), el("div.sub.mono.cut", { title: model.where }, model.where)),
      el("td.wide", {}, model.from_run ? el("a", { href: `/run?id=${encodeURIComponent(model.from_run)}` }, model.from_run) : el("span.sub", {}, model.kind === "base" ? t("models.on_machine") : "–"), model.base ? el("div.sub", {}, t("models.on_base", { base: model.base })) : null),
      el("td.num", {}, model.bytes ? bytes(model.bytes) : "–"),
      el("td.wide", { title: moment(model.created) }, ago(model.created)),
      el("td.do", {}, el("div.btns", {},
        this.features.chat ? el("a.btn.small", { href: `/chat${query(model.from_run ? { id: model.from_run } : { model: model.where })}` }, t("run.chat")) : null,
        this.features.export && model.from_run ? el("a.btn.small", { href: `/run?id=${encodeURIComponent(model.from_run)}` }, t("run.export")) : null,
        el("a.btn.small", { href: `/new${query({ yaml: use })}` }, t("models.train")),
        model.deletable ? el("button.btn.small.danger", { type: "button", "aria-label": t("models.delete_one", { name: model.name }), onclick: () => this.remove(model) }, t("run.delete")) : null)));
  }

  async remove(model) {
    if (!(await ask({ title: t("models.delete_ask", { name: model.name }), text: t("models.delete_text", { size: bytes(model.bytes) }), yes: t("run.delete"), danger: true }))) return;
    try {
      await api(`/models/${encodeURIComponent(model.id)}`, undefined, { method: "DELETE" });
      toast(t("models.deleted", { name: model.name }), "ok");
      await this.load();
    } catch (reason) {
      toast(reason.message, "err");
    }
  }
}
