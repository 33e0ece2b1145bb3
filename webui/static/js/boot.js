// The header at once, and the life of the page as soon as Gradio has put its frame there.
import { say, t, toast } from "./base.js";
import { header } from "./header.js";

const started = new WeakSet();

async function start(root) {
  if (started.has(root)) return;
  started.add(root);
  if (root.dataset.page !== "new") window.factory.early();
  const name = root.dataset.page;
  document.title = `${t(`${name}.title`)} · Factory`;
  say(root);
  const page = await import(`./${name}.js?v=${window.factory.version}`);
  await page.start(root);
  root.dataset.started = "true";
}

function look() {
  for (const root of document.querySelectorAll("[data-page]"))
    start(root).catch((reason) => {
      toast(t("board.no_page", { reason: reason.message }), "err");
      throw reason;
    });
}

const ready = () => {
  document.body.prepend(header());
  new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
  look();
};
if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", ready);
else ready();
