// Every run of this machine: found, sorted, named, compared, deleted; live.
import { ago, api, duration, el, figure, later, number, t, toast } from "./base.js";
import { deleteRuns, editTags, renameRun } from "./actions.js";
import { fill, menuButton, put, sign, typing } from "./dom.js";
import { welcome } from "./first-run.js";
import { live } from "./live.js";
import { Rows } from "./table.js";
import { ALIVE, chip, ENDED, kind, lastPart, moment, percent, reasonWords, textOr } from "./words.js";

const STATES = { alive: (run) => ALIVE.has(run.state), succeeded: (run) => run.state === "succeeded", failed: (run) => run.state === "failed" || run.state === "lost", stopped: (run) => run.state === "stopped" };
const name = (run) => run.title || run.name || run.id;
const share = (run) => (run.state === "succeeded" ? 1 : run.total_steps ? (run.step ?? 0) / run.total_steps : 0);
const ORDER = {
  name: (run) => name(run).toLowerCase(), state: (run) => run.state, kind: (run) => kind(run.stage, run.method), model: (run) => run.model ?? "", data: (run) => run.data ?? "",
  loss: (run) => run.loss ?? Infinity, progress: share, time: (run) => run.left_seconds ?? run.duration ?? 0, started: (run) => run.started ?? run.created ?? 0,
};
const COLUMNS = [["name"], ["state"], ["kind"], ["model", "wide"], ["data", "wide"], ["loss", "num"], ["progress"], ["time"], ["started"]];

/** Fill the page. */
export async function start(root) {
  await new RunsPage(root).begin();
}

class RunsPage {
  constructor(root) {
    this.root = root;
    this.runs = new Map();
    this.selected = new Set();
    this.current = null; // id of the row the keys act on
    this.sort = { by: "started", down: true };
    this.narrow = matchMedia("(max-width: 760px)");
  }

  async begin() {
    this.build();
    const { runs } = await api("/runs");
    this.take({ runs, whole: true });
    live.followList((told) => this.take(told));
    live.onStatus((status) => put(this.connection, { reconnecting: t("live.reconnecting"), polling: t("live.polling") }[status] ?? ""));
    document.addEventListener("keydown", (event) => this.key(event));
    setInterval(() => document.hidden || this.show(), 20000); // "3 min ago" grows old
  }

  build() {
    const options = (prefix, names) => [el("option", { value: "" }, t(`runs.all_${prefix}`)), ...names.map((one) => el("option", { value: one }, textOr(`${prefix}.${one}`, one)))];
    const changed = later(() => this.show(), 60);
    this.search = el("input.field", { type: "search", placeholder: t("runs.search"), "aria-label": t("runs.search"), "data-testid": "search", oninput: changed });
    this.state = el("select.field", { "aria-label": t("runs.filter_state"), "data-testid": "filter-state", onchange: changed }, options("states", Object.keys(STATES)));
    this.stage = el("select.field", { "aria-label": t("runs.filter_stage"), "data-testid": "filter-stage", onchange: changed });
    this.connection = el("span.connection", { role: "status", "data-testid": "connection" });
    this.count = el("span.sub.count", { role: "status", "data-testid": "count" });
    this.bar = el("div.select-bar", { role: "region", "aria-label": t("runs.selection"), "data-testid": "select-bar" });
    this.all = el("input", { type: "checkbox", "aria-label": t("runs.select_all"), onchange: () => this.selectAll() });
    this.heads = new Map(COLUMNS.map(([by, look]) => [by, el("th", { scope: "col", class: look ?? null }, el("button.sort", { type: "button", "data-sort": by, onclick: () => this.order(by) }, t(`runs.${by}`), sign("chevron", 12)))]));
    this.body = el("tbody");
    this.table = el("table.t.runs", { "data-testid": "runs" }, el("caption.hide", {}, t("runs.title")),
      el("thead", {}, el("tr", {}, el("th.pick", { scope: "col" }, this.all), [...this.heads.values()], el("th.do", { scope: "col" }, el("span.hide", {}, t("runs.actions"))))), this.body);
    this.rows = new Rows(this.body, { make: (run) => this.row(run), key: (run) => run.id, sign: (run) => JSON.stringify([run, ago(run.started ?? run.created), this.selected.has(run.id), run.id === this.current]), height: () => (this.narrow.matches ? 118 : 53) });
    this.narrow.addEventListener("change", () => this.rows.draw());
    this.none = el("p.empty", {}, t("runs.no_match"));
    this.tools = el("div.tools", {}, el("span.find-box", {}, sign("search"), this.search), this.state, this.stage, this.connection, this.count);
    this.card = el("section.card.list", {}, this.tools, this.bar, this.table, this.none, el("p.keys", {}, t("runs.keys")));
    fill(this.root.querySelector(".btns"), el("a.btn", { href: "/compare" }, t("nav.compare")), el("a.btn.primary", { href: "/new", "data-testid": "new-run" }, sign("plus", 15), t("nav.new")));
    this.place = this.root.querySelector(".body");
    fill(this.place, el("section.card.list.loading", { "aria-busy": "true" }, el("span.spin")));
  }

  /** Rows that changed, ids that are gone; `whole` when these are all there are. */
  take({ runs, gone = [], whole = false }) {
    if (whole) this.runs.clear();
    for (const run of runs) this.runs.set(run.id, run);
    for (const id of gone) {
      this.runs.delete(id);
      this.selected.delete(id);
    }
    const first = this.runs.size ? "list" : "welcome";
    if (this.first !== first) {
      this.first = first;
      fill(this.place, first === "list" ? this.card : welcome());
    }
    const stages = [...new Set([...this.runs.values()].map((run) => run.stage).filter(Boolean))].sort();
    if (stages.join() !== this.stages) {
      this.stages = stages.join();
      const chosen = this.stage.value;
      fill(this.stage, el("option", { value: "" }, t("runs.all_stages")), stages.map((one) => el("option", { value: one }, textOr(`stage.${one}`, one))));
      this.stage.value = stages.includes(chosen) ? chosen : "";
    }
    this.show();
  }

  wanted() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => {
      const text = [name(run), run.id, run.model, run.data, run.note, run.method, run.stage, ...(run.tags ?? [])].join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const value = ORDER[this.sort.by];
    const sign = this.sort.down ? -1 : 1;
    return [...this.runs.values()]
      .filter((run) => (!this.state.value || STATES[this.state.value](run)) && (!this.stage.value || run.stage === this.stage.value) && fits(run))
      .map((run) => [value(run), run])
      .sort(([a, one], [b, two]) => sign * (a < b ? -1 : a > b ? 1 : 0) || (two.created ?? 0) - (one.created ?? 0))
      .map(([, run]) => run);
  }

  show() {
    if (this.first !== "list") return;
    this.shown = this.wanted();
    this.none.hidden = this.shown.length > 0;
    this.table.hidden = !this.shown.length;
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    const all = this.shown.length === this.runs.size;
    put(this.count, all ? t("runs.count", { n: this.runs.size, count: number(this.runs.size) }) : t("runs.count_of", { shown: number(this.shown.length), count: number(this.runs.size) }));
    for (const [by, head] of this.heads) {
      const on = this.sort.by === by;
      head.setAttribute("aria-sort", on ? (this.sort.down ? "descending" : "ascending") : "none");
    }
    this.rows.set(this.shown);
    this.drawBar();
  }

  order(by) {
    this.sort = { by, down: this.sort.by === by ? !this.sort.down : by === "started" || by === "progress" };
    this.show();
  }

  row(run) {
    const id = run.id;
    const open = `/run?id=${encodeURIComponent(id)}`;
    const pick = el("input", { type: "checkbox", checked: this.selected.has(id), "aria-label": t("runs.select", { name: name(run) }), "data-focus": "pick", onchange: () => this.select(id, pick.checked) });
    const done = share(run);
    const cells = [
      el("td.pick", {}, pick),
      el("td.name", {}, el("div.line1", {}, el("a", { href: open, "data-focus": "open" }, name(run)), (run.tags ?? []).slice(0, 3).map((tag) => el("button.tag", { type: "button", title: t("runs.find_tag"), onclick: () => { this.search.value = tag; this.show(); } }, tag))),
        el("div.line2", {}, run.note || [run.model, run.data].filter(Boolean).map(lastPart).join(" · "))),
      el("td.state", {}, chip(run.state)),
      el("td.kind", {}, kind(run.stage, run.method)),
      el("td.wide.cut", { title: run.model }, lastPart(run.model)),
      el("td.wide.cut", { title: run.data }, lastPart(run.data)),
      el("td.num.loss", {}, el("span.label", {}, t("runs.loss"), " "), figure(run.loss)),
      el("td.progress", {}, el("div.mini", {}, el("div.bar", { "aria-hidden": "true" }, el("i", { class: { failed: "err", lost: "err", stopped: "warn", succeeded: "ok" }[run.state] ?? null, style: `width:${100 * Math.min(1, done)}%` })), el("span.num", {}, percent(done)))),
      el("td.time", { title: reasonWords(run) }, time(run)),
      el("td.started", { title: moment(run.started ?? run.created) }, ago(run.started ?? run.created)),
      el("td.do", {}, menuButton(t("runs.actions_for", { name: name(run) }), () => this.actions(run), { class: "btn small plain square", "data-focus": "do" }, sign("more"))),
    ];
    const classes = [this.selected.has(id) ? "picked" : "", id === this.current ? "current" : ""].filter(Boolean).join(" ");
    return el("tr", { "data-run": id, class: classes || null, onclick: (event) => event.target.closest("a, button, input") || (location.href = open) }, cells);
  }

  actions(run) {
    const alive = ALIVE.has(run.state);
    const act = (path, body, done) => async () => {
      try {
        await api(`/runs/${run.id}${path}`, body);
        toast(done, "ok");
      } catch (reason) {
        toast(reason.message, "err");
      }
    };
    return [
      run.state === "queued" && { label: t("run.front"), run: act("/front", {}, t("run.front_done")) },
      run.state === "queued" && { label: t("run.cancel"), run: act("/cancel", {}, t("run.cancel_done")) },
      alive && run.state !== "queued" && { label: t("run.stop_save"), run: act("/stop", { now: false }, t("run.stop_asked")) },
      ENDED.has(run.state) && run.state !== "succeeded" && { label: t("run.resume"), run: act("/resume", {}, t("run.resumed")) },
      { label: t("runs.copy"), run: () => { location.href = `/new?from=${run.id}`; } },
      { label: t("run.rename"), run: () => this.after(renameRun(run)) },
      { label: t("run.tags"), run: () => this.after(editTags(run)) },
      { label: t("run.delete"), danger: true, disabled: alive, about: alive ? t("run.delete_alive") : null, run: () => this.remove([run]) },
    ];
  }

  async after(work) {
    const told = await work;
    if (told?.run) this.take({ runs: [told.run] });
  }

  async remove(runs) {
    this.take({ runs: [], gone: await deleteRuns(runs) });
  }

  // ------------------------------------------------------------------ selection and keys

  select(id, on) {
    if (on) this.selected.add(id);
    else this.selected.delete(id);
    this.show();
  }

  selectAll() {
    for (const run of this.shown) this.all.checked ? this.selected.add(run.id) : this.selected.delete(run.id);
    this.show();
  }

  drawBar() {
    const picked = this.shown.filter((run) => this.selected.has(run.id));
    this.all.checked = picked.length > 0 && picked.length === this.shown.length;
    this.all.indeterminate = picked.length > 0 && picked.length < this.shown.length;
    this.bar.hidden = !picked.length;
    if (!picked.length) return;
    const ids = picked.map((run) => run.id);
    if (ids.join() === this.barFor) return;
    this.barFor = ids.join();
    const alive = picked.some((run) => ALIVE.has(run.state));
    fill(this.bar, el("b", {}, t("runs.selected", { n: ids.length })),
      ids.length > 1 ? el("a.btn.small.primary", { href: `/compare?ids=${ids.slice(0, 20).join(",")}`, "data-testid": "compare" }, t("runs.compare_them")) : el("span.sub", {}, t("runs.one_more")),
      el("button.btn.small.danger", { type: "button", disabled: alive, title: alive ? t("run.delete_alive") : null, "data-testid": "delete", onclick: () => this.remove(picked) }, t("run.delete")),
      el("button.btn.small.plain", { type: "button", onclick: () => { this.selected.clear(); this.show(); } }, t("runs.clear")));
  }

  key(event) {
    if (event.key === "Escape" && event.target === this.search) {
      this.search.value = "";
      this.search.blur();
      this.show();
    }
    if (typing(event) && !(event.target.type === "checkbox")) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.shown?.findIndex((run) => run.id === this.current) ?? -1;
    const keys = {
      n: () => { location.href = "/new"; },
      "/": () => this.search.focus(),
      j: () => this.move(at + 1),
      k: () => this.move(at - 1),
      x: () => this.current && this.select(this.current, !this.selected.has(this.current)),
      c: () => this.selected.size > 1 && (location.href = `/compare?ids=${[...this.selected].slice(0, 20).join(",")}`),
      Enter: () => this.current && !event.target.closest("a, button") && (location.href = `/run?id=${encodeURIComponent(this.current)}`),
    };
    if (this.first !== "list" && event.key !== "n") return;
    if (!keys[event.key]) return;
    if (event.key !== "Enter") event.preventDefault();
    keys[event.key]();
  }

  move(to) {
    if (!this.shown.length) return;
    const at = Math.max(0, Math.min(this.shown.length - 1, to));
    this.current = this.shown[at].id;
    this.rows.reveal(at);
    this.body.querySelector("tr.current a")?.focus({ preventScroll: true });
  }
}

function time(run) {
  if (run.state === "queued") return run.place ? t("runs.place", { place: number(run.place) }) : "–";
  if (ALIVE.has(run.state)) return run.left_seconds !== null && run.left_seconds !== undefined ? t("runs.left", { time: duration(run.left_seconds) }) : t("runs.starting");
  if (run.state === "failed" && run.card) return textOr(`fault.${run.card.code}`, duration(run.duration));
  return duration(run.duration);
}
