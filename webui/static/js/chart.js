// One chart by uPlot: raw and smoothed curves, a shaded healthy band, log scale, zoom, a cursor shared by a group.
// Charts out of sight are not drawn; data that changes is drawn once a frame.

import uPlot from "/ui/vendor/uplot-1.6.32/uPlot.esm.js";
import { el, figure, number, t } from "./base.js";
import { eachFrame, put } from "./dom.js";
import { smooth } from "./metrics.js";

export const COLOURS = ["--c1", "--c3", "--c2", "--c4", "--c5", "--c6", "--c7", "--c8", "--c9", "--c10"];

const SETTLED = 20; // steps from which a number should lie where it is healthy

const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim() || "#4f46e5";
const faint = (value) => `color-mix(in srgb, ${value} 30%, transparent)`;

/** Whether two ranges are the same but for the pixels that each chart rounds to. */
const near = (one, other) => Boolean(one && other) && Math.abs(one.min - other.min) + Math.abs(one.max - other.max) < 1e-3 * (other.max - other.min);

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.chart.visible(entry.isIntersecting);
}, { rootMargin: "200px" });
const sized = new ResizeObserver((entries) => {
  for (const entry of entries) entry.target.chart.resize();
});
const charts = new Set();
window.addEventListener("themechange", () => charts.forEach((chart) => chart.rebuild()));

export class Chart {
  /** `curves()` gives [{label, x, y, colour?, points?}]; `options`: title, band, group, height, smoothing(). */
  constructor(curves, options) {
    this.curves = curves;
    this.options = { height: 200, smoothing: () => 0, ...options };
    this.log = false;
    this.legend = el("div.legend");
    this.host = el("div.plot", { style: `height:${this.options.height}px` });
    this.logButton = el("button.btn.small", { type: "button", "aria-pressed": "false", title: t("chart.log_help"), onclick: () => this.toggleLog() }, t("chart.log"));
    this.resetButton = el("button.btn.small", { type: "button", hidden: true, onclick: () => this.reset() }, t("chart.reset"));
    this.note = el("p.chart-note");
    this.element = el("section.card.chart", { "data-testid": "chart", "data-chart": this.options.name },
      el("div.chart-head", {}, el("h3", { title: this.options.help }, this.options.title), this.resetButton, this.logButton),
      this.host, this.legend, this.note);
    this.host.setAttribute("role", "img");
    this.host.setAttribute("aria-label", this.options.title);
    this.element.chart = this.host.chart = this;
    this.inSight = false;
    this.update = eachFrame(() => this.draw());
    charts.add(this);
    seen.observe(this.element);
    sized.observe(this.host);
  }

  remove() {
    charts.delete(this);
    seen.unobserve(this.element);
    sized.unobserve(this.host);
    this.plot?.destroy();
    this.element.remove();
  }

  visible(inSight) {
    this.inSight = inSight;
    if (inSight) this.update();
  }

  toggleLog() {
    this.log = !this.log;
    this.logButton.setAttribute("aria-pressed", String(this.log));
    this.rebuild();
  }

  reset() {
    for (const chart of charts) if (chart.options.group === this.options.group) chart.zoomTo(null);
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    this.update();
  }

  resize() {
    const width = this.host.clientWidth;
    if (this.plot && width && Math.abs(width - this.plot.width) > 1) this.plot.setSize({ width, height: this.options.height });
    else if (!this.plot) this.update();
  }

  /** Draws what there is now, if anybody can see it. */
  draw() {
    if (!this.inSight || !this.host.clientWidth || !this.element.isConnected) return;
    const curves = this.curves();
    const shape = JSON.stringify([curves.map((one) => [one.label, one.colour, one.y.length < 40]), this.options.smoothing() > 0]);
    const data = this.table(curves);
    if (!this.plot || shape !== this.shape) {
      this.plot?.destroy();
      this.shape = shape;
      this.build(curves, data);
    } else {
      this.plot.setData(data, !this.zoomed);
      if (this.zoomed) this.plot.redraw(true, false);
    }
    this.latest(curves);
  }

  /** The columns uPlot wants: common steps, then per curve its raw values and, with smoothing, the smooth ones. */
  table(curves) {
    const weight = this.options.smoothing();
    const positive = (values) => (this.log ? values.map((value) => (value > 0 ? value : null)) : values);
    const tables = curves.map((one) => {
      const columns = [positive(one.y)];
      if (weight > 0) columns.push(one.points ? one.y.map(() => null) : positive(smooth(one.y, weight)));
      return [one.x, ...columns];
    });
    if (!tables.length) return [[]];
    const same = tables.every((one) => one[0] === tables[0][0]);
    return same ? [tables[0][0], ...tables.flatMap((one) => one.slice(1))] : uPlot.join(tables);
  }

  build(curves, data) {
    const smoothed = this.options.smoothing() > 0;
    this.colours = curves.map((one, at) => colour(one.colour || COLOURS[at % COLOURS.length]));
    const series = curves.flatMap((one, at) => {
      const ink = this.colours[at];
      const raw = { stroke: smoothed && !one.points ? faint(ink) : ink, width: smoothed && !one.points ? 1 : 1.6, spanGaps: true, points: { show: Boolean(one.points) || one.y.length < 2, size: 6, fill: ink } };
      return smoothed ? [raw, { stroke: ink, width: 1.9, spanGaps: true, points: { show: false } }] : [raw];
    });
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px Inter, ui-sans-serif, system-ui, sans-serif" };
    const plot = new uPlot(
      {
        width: this.host.clientWidth,
        height: this.options.height,
        legend: { show: false },
        cursor: { sync: { key: this.options.group, scales: ["x", null] }, drag: { x: true, y: false, dist: 6 }, points: { size: 6 }, y: false },
        scales: { x: { time: false }, y: this.log ? { distr: 3 } : { range: (_, low, high) => padded(low, high) } },
        axes: [
          { ...axis, size: 26, space: 60, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? number(tick) : "")) },
          { ...axis, size: 54, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : short(tick))) },
        ],
        series: [{}, ...series],
        hooks: { drawClear: [(u) => this.shade(u)], setCursor: [(u) => this.point(u)], setScale: [(u, key) => key === "x" && this.scaled(u)] },
      },
      data,
      this.host,
    );
    plot.over.addEventListener("dblclick", () => this.reset());
    this.plot = plot;
    if (this.zoomed) plot.setScale("x", this.zoomed);
  }

  /** The range in which the number is healthy, as far as it is in sight. */
  shade(plot) {
    const [low, high] = this.options.band || [];
    if (low === undefined || plot.scales.y.min === null || plot.scales.y.min === undefined) return;
    const top = Math.min(high, plot.scales.y.max);
    const bottom = Math.max(low, plot.scales.y.min);
    if (top <= bottom) return;
    const { left, width } = plot.bbox;
    const upper = plot.valToPos(top, "y", true);
    const lower = plot.valToPos(bottom, "y", true);
    plot.ctx.save();
    plot.ctx.fillStyle = colour("--band");
    plot.ctx.fillRect(left, upper, width, lower - upper);
    plot.ctx.restore();
  }

  scaled(plot) {
    const { min, max } = plot.scales.x;
    const steps = plot.data[0];
    const all = !steps.length || (min <= steps[0] && max >= steps.at(-1));
    if (plot !== this.plot) return; // it is being made, and shows all before it is zoomed as the others are
    this.zoomed = all ? null : { min, max };
    this.resetButton.hidden = all;
    // uPlot tells the others in sight; one that nobody has seen yet is drawn zoomed as they are.
    if (!all) for (const chart of charts) if (chart.options.group === this.options.group && !near(chart.zoomed, this.zoomed)) chart.zoomTo(this.zoomed);
  }

  zoomTo(range) {
    this.zoomed = range;
    this.resetButton.hidden = !range;
    if (!this.plot) return;
    const steps = this.plot.data[0];
    this.plot.setScale("x", range || { min: steps[0] ?? 0, max: steps.at(-1) ?? 1 });
  }

  /** The values under the cursor, or the last ones when it is away. */
  point(plot) {
    const at = plot.cursor.idx;
    if (plot.cursor.left < 0 || at === null || at === undefined) this.latest(this.now || []);
    else this.showLegend(plot.data[0][at], (curve) => nearest(plot.data[1 + curve * this.perCurve()], at), (curve) => nearest(plot.data[this.perCurve() * (curve + 1)], at));
  }

  perCurve() {
    return this.options.smoothing() > 0 ? 2 : 1;
  }

  latest(curves) {
    this.now = curves;
    const steps = curves.map((one) => one.x.at(-1) ?? 0);
    const weight = this.options.smoothing();
    const soft = (curve) => (weight > 0 && !curves[curve].points ? smooth(curves[curve].y.slice(-2000), weight).at(-1) : undefined);
    this.showLegend(Math.max(0, ...steps), (curve) => curves[curve].y.at(-1), soft);
    const words = curves.map((one) => `${one.label} ${figure(one.y.at(-1))}`).join(", ");
    this.host.setAttribute("aria-label", t("chart.says", { title: this.options.title, values: words, step: Math.max(0, ...steps) }));
    this.judge(curves);
  }

  showLegend(step, raw, soft) {
    const curves = this.now || [];
    if (this.legend.childElementCount !== curves.length + 1) {
      this.legend.replaceChildren(el("span.step"), ...curves.map((one, at) => el("span", {}, el("i", { style: `background:${this.colours?.[at]}` }), el("span.name", {}, one.label), el("b"))));
    }
    const [first, ...rest] = this.legend.children;
    put(first, this.options.at?.(step) ?? t("chart.step", { step: number(step) }));
    rest.forEach((item, at) => {
      item.firstChild.style.background = this.colours?.[at];
      put(item.children[1], curves[at].label);
      const even = this.options.smoothing() > 0 ? soft(at) : undefined;
      put(item.lastChild, even === undefined || even === null ? figure(raw(at)) : `${figure(even)} (${figure(raw(at))})`);
    });
  }

  /** One quiet line: where the number should lie, and whether it does. */
  judge(curves) {
    const [low, high] = this.options.band || [];
    if (low === undefined || !curves.length) return put(this.note, "");
    const value = curves[0].y.at(-1);
    const out = value !== undefined && curves[0].x.at(-1) >= SETTLED && (value < low || value > high);
    this.note.classList.toggle("out", out);
    const range = high === Infinity ? t("chart.above", { low: figure(low < 1e-3 ? 0 : low) }) : low === 0 ? t("chart.below", { high: figure(high) }) : t("chart.between", { low: figure(low), high: figure(high) });
    return put(this.note, t(out ? "chart.outside" : "chart.healthy", { range }));
  }
}

function padded(low, high) {
  if (low === null || low === undefined) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  const floor = low >= 0 && low - room < 0 ? 0 : low - room;
  return [floor, high + room];
}

function nearest(column, at) {
  if (!column) return undefined;
  for (let away = 0; away < 50; away += 1) {
    if (column[at - away] !== null && column[at - away] !== undefined) return column[at - away];
    if (column[at + away] !== null && column[at + away] !== undefined) return column[at + away];
  }
  return undefined;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  if (size && size < 0.001) return value.toExponential(1).replace("e-0", "e-");
  return String(Number(value.toPrecision(4)));
}

/** The row above a set of charts: the smoothing slider. `change(weight)` is called while it moves. */
export function smoothingControl(change, start = 0) {
  const output = el("output", {}, start.toFixed(2));
  const slider = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: start, "aria-label": t("chart.smoothing"), "data-testid": "smoothing", oninput: () => {
    put(output, Number(slider.value).toFixed(2));
    change(Number(slider.value));
  } });
  return el("label.smoothing", {}, t("chart.smoothing"), slider, output);
}
