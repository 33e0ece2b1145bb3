// The data folder: bring files, see what they hold, and every token of the first rows as the model will get it.
import { ago, api, bytes, el, t, toast } from "./base.js";
import { DataFile } from "./data/file.js";
import { again, upload } from "./data/upload.js";
import { ask, fill, query, sign } from "./dom.js";
import { moment } from "./words.js";

const NOT_IN_NAMES = /[\\/:*?[\]<>|]/g; // the server refuses them

/** Fill the page. */
export async function start(root) {
  const file = new URLSearchParams(location.search).get("file");
  if (file) return new DataFile(root, file).begin();
  return new DataPage(root).begin();
}

class DataPage {
  constructor(root) {
    this.body = root.querySelector(".body");
    this.input = el("input.hide", { type: "file", multiple: true, tabindex: "-1", "aria-hidden": "true", "data-testid": "file-input", onchange: () => this.send([...this.input.files]) });
    this.room = el("p.sub.room");
    this.going = el("div.going", { role: "status" });
    this.drop = el("section.card.drop", { "data-testid": "drop" }, sign("upload", 26),
      el("p", {}, el("b", {}, t("data.drop")), " ", el("button.linklike", { type: "button", onclick: () => this.input.click() }, t("data.choose"))),
      el("p.sub", {}, t("data.kinds")), this.room, this.input, this.going);
    this.lists = el("div.body-part");
  }

  async begin() {
    fill(this.body, this.drop, this.lists);
    for (const type of ["dragenter", "dragover"]) document.addEventListener(type, (event) => { event.preventDefault(); this.drop.classList.add("over"); });
    document.addEventListener("dragleave", (event) => event.relatedTarget || this.drop.classList.remove("over"));
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      this.drop.classList.remove("over");
      this.send([...event.dataTransfer.files]);
    });
    await this.load();
  }

  async load() {
    const { files, samples, used, quota } = await api("/data");
    fill(this.room, t("data.room", { used: bytes(used), all: bytes(quota) }));
    const own = files.length ? this.table(t("data.yours"), files.sort((a, b) => b.changed - a.changed), true) : el("section.card.empty", {}, el("h2", {}, t("data.none")), el("p.sub", {}, t("data.none_text")));
    fill(this.lists, own, samples?.length ? this.table(t("data.samples"), samples, false) : null);
  }

  table(title, files, deletable) {
    return el("section.card", { "aria-label": title }, el("h2", {}, title), el("div.scroll", { tabindex: "0", role: "group", "aria-label": title }, el("table.t", { "data-testid": deletable ? "files" : "samples" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, t("data.file")), el("th.num", { scope: "col" }, t("side.size")), deletable ? el("th.wide", { scope: "col" }, t("data.changed")) : null, el("th.do", { scope: "col" }, el("span.hide", {}, t("runs.actions"))))),
      el("tbody", {}, files.map((file) => el("tr", {},
        el("td.name", {}, el("a", { href: `/data${query({ file: file.path })}` }, file.name)),
        el("td.num", {}, bytes(file.bytes)),
        deletable ? el("td.wide", { title: moment(file.changed) }, ago(file.changed)) : null,
        el("td.do", {}, el("div.btns", {}, el("a.btn.small", { href: `/new${query({ data: file.path })}` }, t("data.train")),
          deletable ? el("button.btn.small.danger", { type: "button", "aria-label": `${t("run.delete")}: ${file.name}`, onclick: () => this.remove(file) }, t("run.delete")) : null))))))));
  }

  async remove(file) {
    if (!(await ask({ title: t("data.delete_ask", { name: file.name }), text: t("data.delete_text", { size: bytes(file.bytes) }), yes: t("run.delete"), danger: true }))) return;
    try {
      await api(`/data/${encodeURIComponent(file.name)}`, undefined, { method: "DELETE" });
      toast(t("data.deleted", { name: file.name }), "ok");
    } catch (reason) {
      toast(reason.message, "err");
    }
    await this.load();
  }

  /** One after the other, each with its bar; the last one is opened when it was the only one. */
  async send(files) {
    let last = null;
    for (const file of files) last = (await this.sendOne(file)) ?? last;
    this.input.value = "";
    await this.load();
    if (files.length === 1 && last) location.href = `/data${query({ file: last.path })}`;
  }

  async sendOne(file, name = file.name.replace(NOT_IN_NAMES, "_"), replace = false) {
    const share = el("i");
    const told = el("b");
    const sending = upload(`/data${query({ name, replace: replace || null })}`, file, (sent, all) => {
      share.style.width = `${(100 * sent) / (all || 1)}%`;
      fill(told, `${bytes(sent)} / ${bytes(all)}`);
    });
    const line = el("div.sending", {}, el("div.pair", {}, el("span", {}, t("data.sending", { name })), told), el("div.bar", {}, share), el("button.btn.small", { type: "button", onclick: () => sending.abort() }, t("data.abort")));
    this.going.append(line);
    try {
      const answer = await sending.answered;
      toast(t("data.sent", { name: answer.file.name }), "ok");
      return answer.file;
    } catch (reason) {
      const next = await again(reason, name);
      if (next?.name) return this.sendOne(file, next.name, next.replace);
      if (!next && reason.code !== "aborted") toast(reason.message, "err");
      return null;
    } finally {
      line.remove();
    }
  }
}

