// New run: Gradio's widgets, the YAML beside them, what is wrong, what it will take, and Start.
import { api, el, icon, say, t, toast } from "./base.js";
import { Form } from "./new/form.js";
import { isDrawn, widgets } from "./new/widgets.js";
import { marks } from "./new/marks.js";
import { rail } from "./new/rail.js";
import { lists } from "./new/list.js";
import { more } from "./new/more.js";
import { offers } from "./new/offers.js";
import { drop } from "./new/drop.js";
import { seen } from "./new/seen.js";
import { kinds } from "./new/kinds.js";
import { beginning, remember } from "./new/draft.js";

/** Fill the page. */
export async function start(root) {
  say(document.getElementById("content"));
  const made = await api(`/jobs/form?language=${window.factory.language}`);
  const form = new Form(made);
  await drawn(made);
  for (const part of [widgets, kinds, marks, lists, more, offers, drop, seen, rail]) part(form, root);
  remember(form);
  buttons(form, root);
  await beginning(form);
}

/** Gradio's part of the page is whole. */
async function drawn(made) {
  while (!(window.factory.fill && isDrawn(made))) await new Promise((next) => setTimeout(next, 15));
}

const DOWN = "M6 9l6 6 6-6";

function buttons(form, root) {
  const file = el("input", { type: "file", accept: ".yaml,.yml,.json", hidden: true, "data-testid": "yaml-file" });
  file.addEventListener("change", async () => {
    if (file.files[0]) await imported(form, await file.files[0].text());
    file.value = "";
  });
  root.querySelector(".btns").append(
    recipes(form),
    el("button.btn", { type: "button", "data-testid": "import-yaml", onclick: () => file.click() }, t("new.import")),
    el("button.btn.plain", { type: "button", "data-testid": "start-over", onclick: () => startOver(form) }, t("new.clear")),
    file);
}

/** Nothing is lost by a slip: for a moment the old job can be had back. */
async function startOver(form) {
  const before = form.text;
  form.values.have = null;
  await form.fill("");
  if (before.trim()) toast(t("new.cleared"), "", { label: t("new.undo"), act: () => form.fill(before) });
}

async function imported(form, text) {
  try {
    await form.fill(text);
    toast(t("new.imported"), "ok");
  } catch (refusal) {
    form.show("text", text, refusal.findings);
  }
}

function recipes(form) {
  const menu = el("div.recipe-menu", { role: "menu", hidden: true, id: "recipes-menu" });
  const button = el("button.btn", {
    type: "button", "aria-haspopup": "menu", "aria-expanded": "false", "aria-controls": "recipes-menu",
    "data-testid": "recipes",
  }, t("new.recipes"), icon(DOWN, { size: 14 }));
  const open = (yes) => {
    menu.hidden = !yes;
    button.setAttribute("aria-expanded", String(yes));
    if (yes) menu.querySelector("button")?.focus();
  };
  button.addEventListener("click", async () => {
    if (!menu.childElementCount) {
      const { recipes: all } = await api("/recipes");
      menu.append(...all.map((one) => el("button.item", {
        type: "button", role: "menuitem", "data-testid": `recipe-${one.name}`,
        onclick: async () => { open(false); button.focus(); await form.fill(one.yaml); },
      }, el("span.name", {}, one.name, one.hardware === "gpu" ? el("span.chip", {}, "GPU") : null),
      el("span.about", {}, one.about))));
    }
    open(menu.hidden);
  });
  menu.addEventListener("keydown", (event) => {
    const items = [...menu.children];
    const at = items.indexOf(document.activeElement);
    if (event.key === "Escape") { open(false); button.focus(); }
    if (event.key === "ArrowDown") { event.preventDefault(); items[(at + 1) % items.length].focus(); }
    if (event.key === "ArrowUp") { event.preventDefault(); items[(at - 1 + items.length) % items.length].focus(); }
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".recipe-place")) open(false); });
  return el("div.recipe-place", {}, button, menu);
}
