// What there is to choose from: models, files of the home, samples, templates.
import { api, t } from "../base.js";

export async function offers(form) {
  form.offered = { "model.name": [], data: [], "model.template": [] };
  const plain = window.factory.shown;
  window.factory.shown = (ids) => plain(ids).map((value, at) => {
    const offered = form.offered[ids[at]];
    return offered ? { __type__: "update", choices: withOwn(offered, value), value } : value;
  });
  const bring = async () => {
    const [models, data] = await Promise.allSettled([api("/models"), api("/data")]);
    if (models.status === "fulfilled") form.offered["model.name"] = models.value.models.filter((one) => one.kind !== "adapter").map((one) => [labelOf(one), one.where ?? one.id]);
    const { files = [], samples = [] } = data.status === "fulfilled" ? data.value : {};
    form.offered.data = [
      ...files.map((one) => [one.name, one.path]),
      ...samples.map((one) => [`data/samples/${one.name}`, `data/samples/${one.name}`]),
    ];
    form.offered["model.template"] = TEMPLATES.map((one) => [one, one]);
    await form.ready;
    window.factory.fill();
  };
  form.on("files", bring);
  await bring();
}

const TEMPLATES = ["alpaca", "chatml", "deepseek", "gemma", "llama2", "llama3", "mistral", "phi", "plain", "qwen", "vicuna", "zephyr"];

function withOwn(offered, value) {
  const values = Array.isArray(value) ? value : value ? [value] : [];
  const missing = values.filter((one) => !offered.some(([, id]) => id === one));
  return [...missing.map((one) => [one, one]), ...offered];
}

function labelOf(one) {
  if (one.kind === "result") return `${one.name} · ${t("new.offer.result")}`;
  return one.name === one.where ? one.name : `${one.name} (${one.where})`;
}
