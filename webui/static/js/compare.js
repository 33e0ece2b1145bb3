// Several runs beside each other: curves on top of each other, settings that differ, last numbers, answers.
import { ago, api, el, figure, later, short, t } from "./base.js";
import { Chart, COLOURS, smoothingControl } from "./chart.js";
import { fill, query, sign } from "./dom.js";
import { live } from "./live.js";
import { better, chartsFor, exact, Series } from "./metrics.js";
import { ALIVE, chip, kind, metricName, settingText } from "./words.js";

const MOST = 20;
const name = (run) => run.title || run.name || run.id;

/** Fill the page. */
export async function start(root) {
  const ids = (new URLSearchParams(location.search).get("ids") ?? "").split(",").filter(Boolean).slice(0, MOST);
  const body = root.querySelector(".body");
  if (ids.length < 2) return picker(root, body, ids);
  try {
    const told = await api(`/compare${query({ ids: ids.join(",") })}`);
    return await new ComparePage(root, body, told).begin();
  } catch (reason) {
    fill(body, reason.code === "run_not_found" ? null : el("div.box.err", { role: "alert" }, reason.message)); // which are missing, the list says
    return picker(root, body.appendChild(el("div.body-part")), ids);
  }
}

/** Which runs to compare, where the address does not say. */
async function picker(root, body, chosen) {
  const { runs } = await api("/runs");
  const known = new Set(runs.map((run) => run.id));
  const unknown = chosen.filter((id) => !known.has(id));
  if (unknown.length) body.before(el("div.box.warn", { role: "status", "data-testid": "compare-unknown" }, t("compare.unknown", { ids: unknown.join(", ") })));
  if (runs.length < 2) {
    fill(body, el("section.card.empty", { "data-testid": "picker" }, el("h2", {}, t("compare.too_few")), el("p.sub", {}, t("compare.too_few_text")), el("p.actions", {}, el("a.btn.primary", { href: "/new" }, t("nav.new")))));
    return;
  }
  const picked = new Set(chosen.filter((id) => known.has(id)));
  const search = el("input.field", { type: "search", placeholder: t("runs.search"), "aria-label": t("runs.search"), oninput: later(draw, 80) });
  const list = el("ul.pick-list");
  const go = el("button.btn.primary", { type: "button", "data-testid": "compare-go", onclick: () => { location.href = `/compare${query({ ids: [...picked].join(",") })}`; } });
  fill(body, el("section.card", { "data-testid": "picker" }, el("div.card-head", {}, el("h2", {}, t("compare.pick")), go), el("span.find-box", {}, sign("search"), search), list));
  function count() {
    go.disabled = picked.size < 2 || picked.size > MOST;
    fill(go, picked.size < 2 ? t("compare.pick_two") : t("compare.go", { n: picked.size }));
  }
  function draw() {
    const words = search.value.toLowerCase();
    const fits = (run) => picked.has(run.id) || [name(run), run.id, run.model, run.stage, ...(run.tags ?? [])].join(" ").toLowerCase().includes(words);
    fill(list, runs.filter(fits).slice(0, 100).map((run) => {
      const box = el("input", { type: "checkbox", checked: picked.has(run.id), onchange: () => { if (box.checked) picked.add(run.id); else picked.delete(run.id); count(); } });
      return el("li", {}, el("label", {}, box, el("span.name", {}, name(run)), chip(run.state), el("span.sub", {}, kind(run.stage, run.method)), el("span.sub.when", {}, ago(run.started ?? run.created))));
    }));
    count();
  }
  draw();
}

class ComparePage {
  constructor(root, body, told) {
    Object.assign(this, { root, body, told });
    this.runs = told.runs.map((run, at) => ({ ...run, colour: COLOURS[at % COLOURS.length], series: new Series() }));
    this.weight = Number(localStorage.getItem("factory-smoothing") ?? 0.6);
    this.hidden = new Set();
  }

  async begin() {
    const ids = this.runs.map((run) => run.id);
    fill(this.root.querySelector(".btns"), el("a.btn", { href: `/compare?ids=${ids[0]}`, "data-testid": "pick-again" }, t("compare.others")));
    this.grid = el("div.charts");
    fill(this.body, this.legend(), this.differing(), el("section.curves", { "aria-label": t("run.curves") }, el("div.chart-tools", {}, el("h2", {}, t("run.curves")), smoothingControl((weight) => this.smooth(weight), this.weight), this.axis(), el("span.sub.hint", {}, t("chart.hint"))), this.grid), this.final(), this.samples());
    await Promise.all(this.runs.map(async (run) => {
      const { series, next } = await api(`/runs/${run.id}/metrics?points=2000`);
      run.series.load(series);
      if (ALIVE.has(run.state)) live.follow(run.id, { cursor: next }, { events: (events) => this.hear(run, events) });
    }));
    this.draw();
  }

  hear(run, events) {
    for (const event of events) if (event.event === "metric") run.series.add(event.step, event.values);
    this.charts?.forEach((chart) => chart.update());
  }

  smooth(weight) {
    this.weight = weight;
    localStorage.setItem("factory-smoothing", String(weight));
    this.charts?.forEach((chart) => chart.update());
  }

  /** Steps, or shares of each run: runs of different lengths lie on top of each other only by share. */
  axis() {
    const button = el("button.btn.small", { type: "button", "aria-pressed": "false", "data-testid": "by-share", onclick: () => {
      this.byShare = !this.byShare;
      button.setAttribute("aria-pressed", String(this.byShare));
      this.charts?.forEach((chart) => chart.reset());
      this.charts?.forEach((chart) => chart.rebuild());
    } }, t("compare.by_share"));
    return button;
  }

  legend() {
    return el("section.card.run-legend", { "aria-label": t("compare.runs") }, this.runs.map((run) => {
      const others = this.runs.filter((one) => one !== run).map((one) => one.id);
      const eye = el("button.swatch", { type: "button", "aria-pressed": "true", "aria-label": t("compare.show", { name: name(run) }), style: `--colour:var(${run.colour})`, onclick: () => {
        if (this.hidden.delete(run.id)) eye.setAttribute("aria-pressed", "true");
        else { this.hidden.add(run.id); eye.setAttribute("aria-pressed", "false"); }
        this.charts?.forEach((chart) => chart.update());
      } });
      return el("div.run-key", { "data-testid": "compare-run" }, eye, el("div", {}, el("a", { href: `/run?id=${run.id}` }, name(run)), el("div.sub", {}, kind(run.stage, run.method), " · ", ago(run.started ?? run.created))), chip(run.state),
        el("a.btn.small.plain.square", { href: `/compare?ids=${others.join(",")}`, "aria-label": t("compare.remove", { name: name(run) }) }, sign("close", 14)));
    }));
  }

  draw() {
    const names = [...new Set(this.runs.flatMap((run) => run.series.names))].sort();
    const { main, rest } = chartsFor(this.runs[0].stage, names);
    const order = [...new Set([...main, ...rest].flatMap((one) => one.names.map((metric) => JSON.stringify([metric, one.names[0] === metric ? one.band : undefined]))))].map((text) => JSON.parse(text));
    const evals = names.filter((metric) => metric.startsWith("eval_")).map((metric) => [metric]);
    const wanted = [...order.slice(0, 1), ...evals.slice(0, 1), ...order.slice(1), ...evals.slice(1)];
    if (!wanted.length) return fill(this.grid, el("p.empty", {}, t("compare.no_curves")));
    this.charts = wanted.slice(0, 40).map(([metric]) => new Chart(() => this.curves(metric), { name: metric, title: metricName(metric), group: "compare", smoothing: () => (exact(metric) ? 0 : this.weight), at: (x) => (this.byShare ? `${Math.round(x)} %` : null) }));
    return fill(this.grid, this.charts.map((chart) => chart.element));
  }

  curves(metric) {
    return this.runs.filter((run) => !this.hidden.has(run.id) && run.series.columns.has(metric)).map((run) => ({ label: name(run), colour: run.colour, points: metric.startsWith("eval_"), ...this.placed(run, run.series.columns.get(metric)) }));
  }

  placed(run, column) {
    if (!this.byShare) return column;
    const all = run.total_steps || column.x.at(-1) || 1;
    return { x: column.x.map((step) => (100 * step) / all), y: column.y };
  }

  table(title, first, rows, testid) {
    return el("section.card", { "aria-label": title, "data-testid": testid }, el("h2", {}, title), el("div.scroll", { tabindex: "0", role: "group", "aria-label": title }, el("table.t.beside", {},
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, first), this.runs.map((run) => el("th", { scope: "col" }, el("i.dot", { style: `background:var(${run.colour})` }), name(run))))),
      el("tbody", {}, rows))));
  }

  differing() {
    const { differing, same, same_count: count } = this.told;
    const rows = differing.map(({ key, values }) => el("tr", {}, el("th.mono", { scope: "row" }, key), this.runs.map((run) => el("td.mono", {}, settingText(values[run.id])))));
    const made = this.table(t("compare.differing"), t("compare.setting"), rows, "differing");
    if (!rows.length) fill(made, el("h2", {}, t("compare.differing")), el("p.sub", {}, t("compare.none_differ")));
    made.append(el("details", {}, el("summary", {}, t("compare.same", { n: count })), el("table.t.slim.settings", {}, el("tbody", {}, Object.entries(same ?? {}).map(([key, value]) => el("tr", {}, el("th.mono", { scope: "row" }, key), el("td.num", {}, settingText(value))))))));
    return made;
  }

  final() {
    const rows = Object.entries(this.told.final).sort(([a], [b]) => Math.abs(better(b)) - Math.abs(better(a)) || a.localeCompare(b)).map(([metric, values]) => {
      const numbers = this.runs.map((run) => values[run.id]).filter((value) => typeof value === "number");
      const sense = better(metric);
      const best = sense && numbers.length > 1 && new Set(numbers).size > 1 ? (sense > 0 ? Math.max(...numbers) : Math.min(...numbers)) : null;
      return el("tr", {}, el("th", { scope: "row" }, metricName(metric)), this.runs.map((run) => el("td.num", {}, Math.abs(values[run.id]) >= 1e4 ? short(values[run.id]) : figure(values[run.id]), best !== null && values[run.id] === best ? el("span.chip.ok", {}, t("side.best")) : null)));
    });
    return rows.length ? this.table(t("compare.final"), t("compare.metric"), rows, "final") : null;
  }

  samples() {
    const { samples } = this.told;
    if (!samples.length) return null;
    return el("section.card", { "aria-label": t("compare.samples"), "data-testid": "compare-samples" }, el("h2", {}, t("compare.samples")), samples.map(({ prompt, answers }) => el("article.sample", {}, el("p.prompt", {}, prompt),
      el("div.many", {}, this.runs.filter((run) => answers[run.id]).map((run) => {
        const told = answers[run.id].last ?? answers[run.id].before;
        return el("div.answer", { style: `border-top-color:var(${run.colour})` }, el("span.k", {}, name(run)), el(told.answer ? "p.says" : "p.says.none", {}, told.answer || t("samples.nothing")),
          Object.keys(told.scores ?? {}).length ? el("div.scores", {}, Object.entries(told.scores).map(([key, value]) => el("span.tag", {}, `${key} `, el("b", {}, figure(value))))) : null);
      })))));
  }
}
