// Which curves and tiles each stage shows, and where its numbers are healthy. Names are those of docs/metrics.md;
// the bands are its third column, as far as a range can be drawn.

const chart = (names, band) => ({ names, band });

const LOSS = chart(["loss"]);
const GRADIENT = chart(["grad_norm"], [0.1, 10]);
const RATE = chart(["learning_rate"]);
const SPEED = chart(["tokens_per_second"]);
const ACCURACY = chart(["accuracy"], [0.7, 1]);
const MARGIN = chart(["margin"], [0, Infinity]);
const PAIR = chart(["reward/chosen", "reward/rejected"]);
const LOGPS = chart(["logps/chosen", "logps/rejected"]);
const KL = chart(["kl"], [0, 2]);
const LENGTH = chart(["length/mean", "length/min", "length/max"]);
const CUT = chart(["length/clipped"], [0, 0.3]);
const CLIPPED = chart(["clip_ratio"], [0, 0.3]);

const LANGUAGE = {
  tiles: ["loss", "eval_loss", "token_accuracy", "tokens_per_second", "tokens"],
  charts: [chart(["loss"], [0.5, 2]), chart(["token_accuracy"]), GRADIENT, RATE, SPEED, chart(["entropy"])],
};
const SAMPLING = {
  tiles: ["reward/mean", "reward/std", "kl", "length/mean", "tokens_per_second"],
  charts: [
    chart(["reward/mean"]),
    chart(["reward/std"], [1e-6, Infinity]),
    chart(["reward/no_spread"], [0, 0.8]),
    KL,
    chart(["entropy"], [0.05, 0.5]),
    LENGTH,
    CUT,
    CLIPPED,
    GRADIENT,
    LOSS,
  ],
};

const STAGES = {
  pretrain: { ...LANGUAGE, charts: [LOSS, ...LANGUAGE.charts.slice(1)] },
  sft: LANGUAGE,
  reward: {
    tiles: ["loss", "eval_loss", "accuracy", "margin", "tokens_per_second"],
    charts: [LOSS, ACCURACY, MARGIN, chart(["reward/mean", "reward/min", "reward/max"]), GRADIENT, RATE],
  },
  dpo: {
    tiles: ["loss", "eval_loss", "accuracy", "margin", "tokens_per_second"],
    charts: [chart(["loss"], [0.3, 0.7]), ACCURACY, MARGIN, PAIR, LOGPS, GRADIENT, RATE, SPEED],
  },
  kto: {
    tiles: ["loss", "eval_loss", "margin", "kl", "tokens_per_second"],
    charts: [LOSS, MARGIN, PAIR, KL, LOGPS, GRADIENT, RATE, SPEED],
  },
  orpo: {
    tiles: ["loss", "eval_loss", "accuracy", "margin", "log_odds_ratio"],
    charts: [LOSS, ACCURACY, chart(["nll_loss"]), chart(["log_odds_ratio"]), MARGIN, PAIR, GRADIENT, RATE],
  },
  grpo: SAMPLING,
  rloo: SAMPLING,
  ppo: {
    tiles: ["reward/mean", "objective", "kl", "value/explained", "tokens_per_second"],
    charts: [
      chart(["reward/mean", "objective"]),
      chart(["kl", "kl/answer"]),
      chart(["loss/policy"]),
      chart(["loss/value"]),
      chart(["value/explained"], [0, 1]),
      chart(["entropy"]),
      chart(["ratio"], [0.9, 1.1]),
      chart(["approx_kl"], [0, 0.02]),
      CLIPPED,
      LENGTH,
      CUT,
      GRADIENT,
    ],
  },
};

/** Tiles and charts of a stage; one that this page does not know gets what every stage logs. */
export const stageOf = (name) =>
  STAGES[name] || { tiles: ["loss", "eval_loss", "grad_norm", "learning_rate", "tokens_per_second"], charts: [LOSS, GRADIENT, RATE, SPEED] };

/** The charts of a stage that have numbers, then one for every other metric: {main, rest}. */
export function chartsFor(stage, names) {
  const known = new Set(names);
  const shown = stageOf(stage)
    .charts.map((one) => ({ ...one, names: one.names.filter((name) => known.has(name)) }))
    .filter((one) => one.names.length);
  const parts = names.filter((name) => /^reward\/[^/]+\/mean$/.test(name)); // one curve per reward function
  if (parts.length) shown.splice(1, 0, { names: parts });
  const used = new Set(shown.flatMap((one) => one.names.flatMap((name) => [name, `eval_${name}`])));
  const rest = names.filter((name) => !used.has(name) && !used.has(name.replace(/^eval_/, ""))).map((name) => ({ names: [name] }));
  return { main: shown, rest };
}

/** What is set or counted rather than measured: smoothing it would only show it wrongly. */
export const exact = (name) => /^(learning_rate|tokens|trained_tokens)$/.test(name);

/** Whether more is better (1), less is better (-1), or neither (0): to mark the best of several runs. */
export function better(name) {
  const plain = name.replace(/^eval_/, "");
  if (/(^|_|\/)loss($|\/)|^loss|no_spread|clipped|step_time|^approx_kl/.test(plain)) return -1;
  if (/accuracy|margin|reward\/(.*\/)?mean|objective|explained|per_second|log_odds_chosen/.test(plain)) return 1;
  return 0;
}

/** Metrics by name as two growing columns; a step that comes again (after a resume) replaces what stood behind it. */
export class Series {
  constructor() {
    this.columns = new Map();
    this.changed = 0;
  }

  /** Takes a server's {name: [[step...], [value...]]}. */
  load(series) {
    for (const [name, [steps, values]] of Object.entries(series)) this.columns.set(name, { x: [...steps], y: [...values] });
    this.changed += 1;
  }

  add(step, values) {
    for (const [name, value] of Object.entries(values)) {
      let column = this.columns.get(name);
      if (!column) this.columns.set(name, (column = { x: [], y: [] }));
      while (column.x.length && column.x.at(-1) >= step) {
        column.x.pop();
        column.y.pop();
      }
      column.x.push(step);
      column.y.push(value);
      if (column.x.length > MOST) halve(column);
    }
    this.changed += 1;
  }

  get names() {
    return [...this.columns.keys()];
  }

  last(name) {
    return this.columns.get(name)?.y.at(-1);
  }

  lastStep(name) {
    return this.columns.get(name)?.x.at(-1);
  }
}

const MOST = 6000;

/** Keeps the lowest and the highest of every four points, in order; the newest thousand stay as they are. */
function halve(column) {
  const x = [];
  const y = [];
  const old = column.x.length - 1000;
  for (let at = 0; at < old; at += 4) {
    let low = at;
    let high = at;
    for (let one = at; one < Math.min(at + 4, old); one += 1) {
      if (column.y[one] < column.y[low]) low = one;
      if (column.y[one] > column.y[high]) high = one;
    }
    for (const one of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) {
      x.push(column.x[one]);
      y.push(column.y[one]);
    }
  }
  column.x = x.concat(column.x.slice(old));
  column.y = y.concat(column.y.slice(old));
}

/** Exponential moving average without the pull towards its start: `weight` 0 is the raw curve, 0.99 very smooth. */
export function smooth(values, weight) {
  let average = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null || value === undefined) return value;
    average = weight * average + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return average / mass;
  });
}
