// Which stages suit what somebody has, and which fields belong to the chosen stage and method.
import { el } from "../base.js";

export function kinds(form) {
  const style = el("style", { id: "kinds" });
  document.head.append(style);
  form.have = (shape) => {
    form.values.have = shape;
    const fitting = stagesFor(form, shape);
    if (!fitting.includes(form.kinds.stage)) form.change({ stage: fitting[0] }, { fill: true });
    else draw();
  };

  const draw = () => {
    const { stage } = form.kinds;
    const fitting = stagesFor(form, form.values.have);
    const hidden = Object.entries(form.made.kinds).flatMap(([part, all]) =>
      all.filter((kind) => kind !== form.kinds[part]).map((kind) => `.of-${part}-${kind}`));
    const unfit = Object.keys(form.made.stages).filter((one) => fitting.length && !fitting.includes(one) && one !== stage)
      .map((one) => `#f-stage label:has(input[value="${one}"])`);
    const empty = form.values.have || stage ? [] : [".card-training"];
    const rewards = form.rewarded ? [] : ["#rewards-card"];
    style.textContent = `${[...hidden, ...unfit, ...empty, ...rewards].join(",")}{display:none!important}`;
  };
  form.on("kinds", draw);
  form.on("filled", draw);
  draw();
}

/** The stages that can learn from rows of a shape, those that like it best first. */
export function stagesFor(form, shape) {
  const place = (name) => form.made.stages[name].needs.indexOf(shape);
  const fitting = Object.keys(form.made.stages).filter((name) => place(name) >= 0);
  const liked = ["sft", "pretrain", "dpo", "grpo"];
  return fitting.sort((a, b) => place(a) - place(b) || rank(liked, a) - rank(liked, b));
}

const rank = (list, name) => (list.indexOf(name) < 0 ? list.length : list.indexOf(name));
