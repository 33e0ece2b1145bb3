// The stage's curves, and behind a button every other one.
import { el, t } from "../base.js";
import { Chart, smoothingControl } from "../chart.js";
import { fill } from "../dom.js";
import { chartsFor, exact } from "../metrics.js";
import { metricName, textOr } from "../words.js";

export class Charts {
  constructor(page) {
    this.page = page;
    this.weight = Number(localStorage.getItem("factory-smoothing") ?? 0.6);
    this.grid = el("div.charts");
    this.others = el("button.btn.small", { type: "button", "data-testid": "all-charts", onclick: () => { this.all = !this.all; this.names = ""; this.draw(); } });
    this.tools = el("div.chart-tools", {}, el("h2", {}, t("run.curves")), smoothingControl((weight) => this.smooth(weight), this.weight), el("span.sub.hint", {}, t("chart.hint")), this.others);
    this.element = el("section.curves", { "aria-label": t("run.curves") }, this.tools, this.grid);
    this.charts = new Map();
  }

  smooth(weight) {
    this.weight = weight;
    localStorage.setItem("factory-smoothing", String(weight));
    for (const chart of this.charts.values()) chart.update();
  }

  draw() {
    const { series, detail } = this.page;
    this.element.hidden = !series.names.length;
    const names = series.names.sort().join();
    if (names !== this.names) {
      this.names = names;
      this.arrange(chartsFor(detail.stage, series.names));
    }
    if (series.changed !== this.drawn) for (const chart of this.charts.values()) chart.update();
    this.drawn = series.changed;
  }

  arrange({ main, rest }) {
    const shown = this.all ? [...main, ...rest] : main;
    this.others.hidden = !rest.length;
    fill(this.others, this.all ? t("chart.fewer") : t("chart.all", { n: rest.length }));
    this.others.setAttribute("aria-pressed", String(Boolean(this.all)));
    const wanted = new Map(shown.map((one) => [one.names.join(), one]));
    for (const [key, chart] of this.charts)
      if (!wanted.has(key)) {
        chart.remove();
        this.charts.delete(key);
      }
    for (const [key, one] of wanted) if (!this.charts.has(key)) this.charts.set(key, this.make(one));
    this.grid.replaceChildren(...[...wanted.keys()].map((key) => this.charts.get(key).element));
    for (const chart of this.charts.values()) chart.update();
  }

  make({ names, band }) {
    const { series } = this.page;
    const curves = () => names.flatMap((name) => [name, `eval_${name}`])
      .filter((name) => series.columns.has(name))
      .map((name) => ({ label: names.length > 1 || name.startsWith("eval_") ? metricName(name) : t("chart.training"), points: name.startsWith("eval_"), ...series.columns.get(name) }));
    const title = names.length > 1 ? textOr(`chart.title.${names[0]}`, names.map(metricName).join(", ")) : metricName(names[0]);
    return new Chart(curves, { name: names[0], title, help: textOr(`about.${names[0]}`, ""), band, group: "run", smoothing: () => (exact(names[0]) ? 0 : this.weight) });
  }
}
