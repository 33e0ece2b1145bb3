// What the run became for others: a button that starts an export, how far each is, what was verified, downloads.
import { api, bytes, el, t, toast, told } from "../base.js";
import { fill, menuButton, put, sign } from "../dom.js";
import { exportForm } from "./export-form.js";

const OVER = new Set(["done", "failed", "cancelled"]);
const PAUSE = 1000; // ms between two looks while something is being made

export class ExportsCard {
  constructor(page) {
    this.page = page;
    this.exports = [];
    this.targets = [];
    this.element = el("section.card", { "aria-label": t("export.title"), "data-testid": "exports" });
    this.element.hidden = true;
    if (page.features.export) this.look();
  }

  draw() {
    if (this.page.features.export && this.page.detail.state === "succeeded" && !this.targets.length && !this.asking) this.look();
  }

  async look() {
    clearTimeout(this.soon);
    this.asking = true;
    try {
      const { exports, targets } = await api(`/runs/${this.page.id}/exports`);
      this.exports = exports;
      this.targets = targets;
      this.show();
    } catch {
      // The next look may find the server again.
    }
    this.asking = false;
    if (this.exports.some((one) => !OVER.has(one.state))) this.soon = setTimeout(() => this.look(), PAUSE);
  }

  /** The button for the head of the page: a menu of what this run can become. */
  button() {
    return menuButton(t("run.export"), () => this.menu(), { class: "btn", "data-testid": "export" }, t("run.export"), sign("chevron", 14));
  }

  async menu() {
    if (!this.targets.length) await this.look();
    return this.targets.map((one) => ({
      label: t(`export.${one.name}`), about: one.refused ?? t(`export.${one.name}_help`), disabled: Boolean(one.refused), run: () => this.begin(one.name),
    }));
  }

  async begin(target) {
    try {
      if (!(await exportForm(this.page.id, target))) return;
      toast(t("export.begun"), "ok");
      await this.look();
      this.element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    } catch (reason) {
      toast(reason.message, "err");
    }
  }

  show() {
    this.element.hidden = !this.exports.length;
    const names = this.exports.map((one) => `${one.name} ${one.state}`).join();
    if (names !== this.shape) {
      this.shape = names;
      fill(this.element, el("h2", {}, t("export.title")), [...this.exports].reverse().map((one) => this.row(one)));
    }
    for (const one of this.exports) this.progress(one);
  }

  row(one) {
    const path = `/api/runs/${this.page.id}/exports/${one.name}`;
    const made = el("div.export", { "data-testid": `export-${one.name}` }, el("div.pair", {}, el("b", {}, one.name), el("span.sub", {}, one.state === "done" ? bytes(one.bytes) : t(`export.${one.state}`))));
    if (!OVER.has(one.state)) {
      made.append(el("div.bar", { role: "progressbar", "aria-label": one.name, "aria-valuemin": 0, "aria-valuemax": 100 }, el("i")), el("p.sub.phase", { role: "status" }),
        el("button.btn.small", { type: "button", onclick: () => this.act(`/${one.name}/cancel`, {}) }, t("export.cancel")));
    } else if (one.state === "done") {
      const checked = el("details", {}, el("summary", {}, t("export.verified", { n: one.verified_by?.length ?? 0 })), el("ul", {}, [...(one.verified_by ?? []), ...(one.notes ?? [])].map((text) => el("li", {}, text))));
      made.append(checked, el("p.sub.mono.path", {}, one.path ?? ""), el("div.btns", {},
        el("a.btn.small", { href: `${path}/download`, "data-testid": `download-${one.name}` }, t("export.download")),
        one.target === "gguf" || one.target === "ollama" ? el("a.btn.small", { href: `${path}/download?file=model.gguf`, "data-testid": `file-${one.name}` }, "model.gguf") : null));
    } else if (one.error) made.append(el("p.what", { role: "alert" }, told(one.error)));
    return made;
  }

  progress(one) {
    const row = OVER.has(one.state) ? null : this.element.querySelector(`[data-testid="export-${CSS.escape(one.name)}"]`);
    if (!row) return;
    const share = Math.round(100 * (one.share ?? 0));
    row.querySelector(".bar").setAttribute("aria-valuenow", share);
    row.querySelector(".bar i").style.width = `${share}%`;
    put(row.querySelector(".phase"), one.phase ?? "");
  }

  async act(path, body) {
    try {
      await api(`/runs/${this.page.id}/exports${path}`, body);
    } catch (reason) {
      toast(reason.message, "err");
    }
    await this.look();
  }
}
