// The column at the right: the machine, checkpoints, what happened, settings.
import { api, bytes, el, figure, number, t, toast } from "../base.js";
import { fill, put, sign } from "../dom.js";
import { ALIVE, breakable, clock, dotted, ENDED, eventWords, gib, moment, settingText } from "../words.js";

const MOST = 100; // events shown

export class Side {
  constructor(page) {
    this.page = page;
    this.meters = el("div.meters");
    this.machineNote = el("p.sub");
    this.machineCard = el("section.card", { "aria-label": t("side.machine"), "data-testid": "machine-card" }, el("h2", {}, t("side.machine")), this.meters, this.machineNote);
    this.checkpoints = el("section.card", { "aria-label": t("side.checkpoints"), "data-testid": "checkpoints" });
    this.happened = el("section.card", { "aria-label": t("side.events"), "data-testid": "events" });
    this.settings = el("section.card", { "aria-label": t("side.settings"), "data-testid": "settings" });
    this.element = el("div.run-side", {}, this.machineCard, this.checkpoints, this.happened, this.settings);
    this.machineCard.hidden = true;
  }

  draw() {
    if (ENDED.has(this.page.detail.state)) this.machineCard.hidden = true;
    this.drawCheckpoints();
    this.drawEvents();
    this.drawSettings();
  }

  /** How busy the machine is, told every two seconds by the stream. */
  machine(load) {
    const { detail, id } = this.page;
    this.machineCard.hidden = !load || ENDED.has(detail.state);
    if (this.machineCard.hidden) return;
    const own = load.per_run?.[id];
    const rows = [[t("meter.cpu"), `${number(load.cpu_percent)} %`, load.cpu_percent / 100, "--c3"]];
    if (own) rows.push([t("meter.own_memory"), gib(own.memory), own.memory / load.memory, "--c1"]);
    if (load.memory) rows.push([t("meter.memory"), t("meter.of", { used: gib(load.memory_used), all: gib(load.memory) }), load.memory_used / load.memory, "--c1"]);
    if (load.disk) rows.push([t("meter.disk"), t("meter.of", { used: gib(load.disk - load.disk_free), all: gib(load.disk) }), 1 - load.disk_free / load.disk, "--c2"]);
    for (const gpu of load.gpus ?? []) {
      if (gpu.busy !== undefined && gpu.busy !== null) rows.push([t("meter.gpu", { index: gpu.index }), `${number(gpu.busy)} %`, gpu.busy / 100, "--c3"]);
      rows.push([t("meter.gpu_memory", { index: gpu.index }), t("meter.of", { used: gib(gpu.memory_used), all: gib(gpu.memory) }), gpu.memory_used / gpu.memory, "--c4"]);
    }
    if (this.meters.childElementCount !== rows.length)
      fill(this.meters, rows.map(([, , , colour]) => el("div", {}, el("div.pair", {}, el("span"), el("b")), el("div.bar", { role: "meter", "aria-valuemin": 0, "aria-valuemax": 100 }, el("i", { style: `background:var(${colour})` })))));
    rows.forEach(([name, value, share], at) => {
      const [pair, bar] = this.meters.children[at].children;
      put(pair.firstChild, name);
      put(pair.lastChild, value);
      bar.setAttribute("aria-label", `${name}: ${value}`);
      bar.setAttribute("aria-valuenow", Math.round(100 * share));
      bar.firstChild.style.width = `${Math.min(100, 100 * share)}%`;
    });
    put(this.machineNote, load.gpus?.length ? "" : t("meter.no_gpu"));
    this.machineNote.hidden = Boolean(load.gpus?.length);
  }

  drawCheckpoints() {
    const { detail } = this.page;
    const list = detail.checkpoints ?? [];
    const shape = JSON.stringify([list, detail.model_bytes]);
    if (shape === this.checkpointShape) return;
    this.checkpointShape = shape;
    const judged = list.some((one) => one.eval_loss !== null && one.eval_loss !== undefined);
    const rows = [...list].sort((a, b) => b.step - a.step);
    this.checkpoints.hidden = !ALIVE.has(detail.state) && !rows.length;
    fill(this.checkpoints, el("h2", {}, t("side.checkpoints")), rows.length
      ? el("table.t.slim", {}, el("thead", {}, el("tr", {}, el("th", {}, t("run.step")), judged ? el("th.num", {}, t("metric.eval_loss")) : null, el("th.num", {}, t("side.size")))),
        el("tbody", {}, rows.map((one) => el("tr", { title: one.path }, el("td", {}, number(one.step), one.best ? el("span.chip.ok", {}, t("side.best")) : null, one.pinned ? el("span.chip", {}, t("side.pinned")) : null, this.pinButton(one)),
          judged ? el("td.num", {}, figure(one.eval_loss)) : null, el("td.num", {}, bytes(one.bytes))))))
      : el("p.sub", {}, t("side.no_checkpoints")));
  }

  /** Keeps a checkpoint for good, or no longer. */
  pinButton({ step, pinned }) {
    const label = t("side.pin", { step: number(step) });
    const press = async () => {
      try {
        await api(`/runs/${this.page.id}/checkpoints/${step}/pin`, undefined, { method: pinned ? "DELETE" : "PUT" });
        await this.page.refresh();
        this.checkpoints.querySelector(`[data-testid="pin-${step}"]`)?.focus();
      } catch (reason) {
        toast(reason.message, "err");
      }
    };
    return el("button.btn.small.plain.square", { type: "button", "aria-pressed": String(pinned), "aria-label": label, title: label, "data-testid": `pin-${step}`, onclick: press }, sign("pin", 14));
  }

  drawEvents() {
    const { events } = this.page;
    if (events.length === this.eventCount) return;
    this.eventCount = events.length;
    const told = events.map((event) => [event, eventWords(event)]).filter(([, words]) => words).slice(-MOST).reverse();
    fill(this.happened, el("h2", {}, t("side.events")), told.length
      ? el("ol.timeline", { tabindex: "0", "aria-label": t("side.events") }, told.map(([event, words]) => el(`li${words.level ? `.${words.level}` : ""}`, {},
        el("time", { title: moment(event.t), datetime: new Date(event.t * 1000).toISOString() }, clock(event.t, true)),
        el("span", {}, words.text, words.hint ? el("span.try", {}, ` ${words.hint}`) : null))))
      : el("p.sub", {}, t("side.no_events")));
  }

  drawSettings() {
    const { detail } = this.page;
    if (this.settingsOf === detail.id || !detail.job) return;
    this.settingsOf = detail.id;
    const own = detail.defaults_changed ?? {};
    const row = ([name, value]) => el("tr", {}, el("th.mono", { scope: "row" }, breakable(name)), el("td.num", {}, settingText(value)));
    const rest = Object.entries(dotted(detail.job)).filter(([name]) => !(name in own));
    fill(this.settings, el("div.card-head", {}, el("h2", {}, t("side.settings")), el("a.btn.small.plain", { href: `/api/runs/${detail.id}/files/job`, download: true }, sign("down", 14), t("side.yaml"))),
      el("table.t.slim.settings", {}, el("caption.hide", {}, t("side.own")), el("tbody", {}, Object.entries(own).map(row))),
      el("details", {}, el("summary", {}, t("side.all", { n: rest.length })), el("table.t.slim.settings", {}, el("tbody", {}, rest.map(row)))));
  }
}
