// What a home without runs shows: one click to a first trained model.
import { api, duration, el, t, toast } from "./base.js";
import { draft, put, sign } from "./dom.js";

const RECIPE = "quickstart";
const KEPT = "factory-first-draft";

/** The card for somebody who has not trained anything yet. */
export function welcome() {
  const minutes = el("span", {}, t("first.title"));
  const about = el("p.sub", {}, t("first.text"));
  const go = el("button.btn.primary.large", { type: "button", "data-testid": "first-run" }, sign("play", 15), t("first.start"));
  go.addEventListener("click", () => begin(go));
  estimate().then((seconds) => seconds && put(minutes, t("first.title_time", { time: duration(Math.ceil(seconds / 60) * 60) })), () => {});
  return el("section.card.welcome", { "data-testid": "welcome" },
    el("img", { src: "/ui/mark.svg", alt: "", width: 44, height: 44 }),
    el("h2", {}, minutes), about,
    el("ol.steps", {}, ["first.step1", "first.step2", "first.step3"].map((key) => el("li", {}, t(key)))),
    go,
    el("p.sub.ways", {}, t("first.or"), " ", el("a", { href: "/data" }, t("first.data")), " · ", el("a", { href: "/new" }, t("first.yaml")), " · ", el("a", { href: "/new" }, t("first.form"))));
}

async function recipe() {
  const { recipes } = await api("/recipes");
  const found = recipes.find((one) => one.name === RECIPE);
  if (!found) throw new Error(t("first.gone"));
  return found.yaml;
}

async function estimate() {
  const { plan } = await api("/jobs/plan", { yaml: await recipe(), quick: false }); // counts the rows, or there is no time to tell
  return plan?.forecast?.seconds ?? null;
}

async function begin(button) {
  button.disabled = true;
  try {
    const { run } = await api("/jobs/submit", { yaml: await recipe(), draft: kept() });
    location.href = `/run?id=${encodeURIComponent(run.id ?? run)}`;
  } catch (reason) {
    if (reason.code === "draft_taken") sessionStorage.removeItem(KEPT); // the recipe is another than it was then
    toast(reason.message, "err");
    button.disabled = false;
  }
}

/** The same word for every try from this tab: a double click or a lost answer starts one run. */
function kept() {
  const word = sessionStorage.getItem(KEPT) ?? draft();
  sessionStorage.setItem(KEPT, word);
  return word;
}
