// What there is to choose from: models, files of the home, samples, templates.
import { api, t } from "../base.js";

export async function offers(form) {
  const offer = (id, choices) => {
    form.offers[id] = choices;
    form.offers.fresh.add(id);
  };
  const bring = async () => {
    const [models, data] = await Promise.allSettled([api("/models"), api("/data")]);
    if (models.status === "fulfilled") offer("model.name", models.value.models.filter((one) => one.kind !== "adapter").map((one) => [labelOf(one), one.where ?? one.id]));
    const { files = [], samples = [] } = data.status === "fulfilled" ? data.value : {};
    offer("data", [
      ...files.map((one) => [one.name, one.path]),
      ...samples.map((one) => [`data/samples/${one.name}`, `data/samples/${one.name}`]),
    ]);
    offer("model.template", form.made.templates.map((one) => [one, one]));
    form.tell("values");
  };
  form.on("files", bring);
  await bring();
}

function labelOf(one) {
  if (one.kind === "result") return `${one.name} · ${t("new.offer.result")}`;
  return one.name === one.where ? one.name : `${one.name} (${one.where})`;
}
