// Title, state, what it is, and what can be done with it.
import { api, el, t, toast } from "../base.js";
import { fill, menuButton, put, sign } from "../dom.js";
import { ALIVE, ENDED, chip, kind, lastPart } from "../words.js";
import { deleteRun, editTags } from "../actions.js";

export class Head {
  constructor(page) {
    this.page = page;
    this.name = el("span", { "data-testid": "run-title" });
    this.chip = el("span.chip-place");
    this.what = el("p.lead", { "data-testid": "run-what" });
    this.tags = el("div.tags");
    this.quiet = el("span.connection", { role: "status", "data-testid": "connection" });
    this.pencil = el("button.btn.small.plain.square", { type: "button", "aria-label": t("run.rename"), title: t("run.rename"), "data-testid": "rename", onclick: () => this.rename() }, sign("edit", 15));
    this.heading = el("h1.run-title", {}, this.name);
    this.title = el("div.title-line", {}, this.heading, this.pencil, this.chip, this.quiet);
    const head = page.root.querySelector(".head");
    fill(head.firstElementChild, this.title, this.what, this.tags);
    this.buttons = head.querySelector(".btns");
  }

  draw() {
    const { detail } = this.page;
    put(this.name, this.page.title);
    if (this.shown !== detail.state) fill(this.chip, chip(detail.state));
    put(this.what, [lastPart(detail.model), lastPart(detail.data), kind(detail.stage, detail.method)].filter((part) => part && part !== "–").join(" · "));
    this.what.title = [detail.model, detail.data].filter(Boolean).join("\n");
    fill(this.tags, (detail.tags || []).map((tag) => el("span.tag", {}, tag)), detail.note ? el("span.note", {}, detail.note) : null);
    this.tags.hidden = !this.tags.childElementCount;
    const shape = JSON.stringify([detail.state, detail.checkpoint, detail.place, detail.orphans]);
    if (this.shape !== shape) fill(this.buttons, this.actions());
    this.shape = shape;
    this.shown = detail.state;
  }

  connection(status) {
    put(this.quiet, { reconnecting: t("live.reconnecting"), polling: t("live.polling") }[status] ?? "");
  }

  actions() {
    const { state, checkpoint, place, orphans } = this.page.detail;
    const { page } = this;
    const made = [];
    if (page.features.chat && state === "succeeded") made.push(el("a.btn", { href: `/chat?id=${page.id}` }, t("run.chat")));
    if (page.features.export && state === "succeeded") made.push(page.parts.exports.button());
    if (state === "queued") {
      if (place !== 1) made.push(this.button("front", () => page.act("/front", {}, t("run.front_done"))));
      made.push(this.button("cancel", () => page.act("/cancel", {}, t("run.cancel_done")), "danger"));
    } else if (state === "stopping") made.push(this.button("stop_now", () => page.act("/stop", { now: true }), "danger"));
    else if (ALIVE.has(state)) made.push(this.stop());
    if (state === "lost" && orphans) made.push(this.button("end_orphans", () => page.act("/stop", { now: true }), "danger"));
    if (ENDED.has(state)) {
      const again = el("a.btn", { href: `/new?from=${page.id}`, "data-testid": "retry" }, t(state === "succeeded" ? "run.again" : "run.retry"));
      made.push(again);
      if (state !== "succeeded") made.push(this.button("resume", () => page.act("/resume", {}, t(checkpoint ? "run.resumed" : "run.restarted")), checkpoint ? "primary" : ""));
    }
    made.push(menuButton(t("run.more"), () => this.more(), { class: "btn square", "data-testid": "more" }, sign("more")));
    return made;
  }

  button(name, run, look = "") {
    const made = el(look ? `button.btn.${look}` : "button.btn", { type: "button", "data-testid": name, title: t(`run.${name}_help`) }, t(`run.${name}`));
    made.addEventListener("click", async () => {
      made.disabled = true;
      await run();
      made.disabled = false;
    });
    return made;
  }

  stop() {
    const { page } = this;
    return menuButton(t("run.stop"), () => [
      { label: t("run.stop_save"), about: t("run.stop_save_help"), run: () => page.act("/stop", { now: false }, t("run.stop_asked")) },
      { label: t("run.stop_now"), about: t("run.stop_now_help"), danger: true, run: () => page.act("/stop", { now: true }) },
    ], { class: "btn danger", "data-testid": "stop" }, t("run.stop"), sign("chevron", 14));
  }

  more() {
    const { page } = this;
    const alive = ALIVE.has(page.detail.state);
    const get = (file) => () => { location.href = `/api/runs/${page.id}/files/${file}`; };
    return [
      { label: t("run.rename"), run: () => this.rename() },
      { label: t("run.tags"), run: async () => (await editTags(page.detail)) && page.refresh() },
      { label: t("run.compare"), run: () => { location.href = `/compare?ids=${page.id}`; } },
      { label: t("run.get_config"), run: get("job") },
      { label: t("run.get_log"), run: get("log") },
      { label: t("run.delete"), danger: true, disabled: alive, about: alive ? t("run.delete_alive") : null, run: async () => (await deleteRun(page.detail)) && (location.href = "/") },
    ];
  }

  /** The title becomes a field in its place; Enter keeps it, Escape does not. */
  rename() {
    const input = el("input.field.rename", { value: this.page.title, maxlength: 100, "aria-label": t("run.new_name"), "data-testid": "rename-field" });
    let over = false;
    const finish = async (keep) => {
      if (over) return;
      over = true;
      this.heading.hidden = this.pencil.hidden = false;
      input.remove();
      if (!keep || input.value.trim() === this.page.title) return;
      try {
        await api(`/runs/${this.page.id}`, { title: input.value.trim() }, { method: "PATCH" });
        await this.page.refresh();
      } catch (reason) {
        toast(reason.message, "err");
      }
    };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        finish(event.key === "Enter");
        this.pencil.focus();
      }
    });
    input.addEventListener("blur", () => finish(true));
    this.heading.hidden = this.pencil.hidden = true;
    this.title.prepend(input);
    input.select();
  }
}

