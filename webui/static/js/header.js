// Brand, pages, machine, language, theme. Stands outside of Gradio, so it is there before Gradio is.
import { api, el, icon, t } from "./base.js";

const THEMES = {
  system: "M12 3a9 9 0 1 0 0 18z M12 3a9 9 0 0 1 0 18",
  light: "M12 7.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M12 2v1.5M12 20.5V22M4.9 4.9 6 6M18 18l1.1 1.1M2 12h1.5M20.5 12H22M4.9 19.1 6 18M18 6l1.1-1.1",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
};
const HERE = { "/run": "/" };

export function header() {
  const path = location.pathname.replace(/\/$/, "") || "/";
  const here = HERE[path] ?? path;
  const links = window.factory.nav.map(([name, href]) =>
    el("a", { href, "aria-current": href === here ? "page" : null, "data-testid": `nav-${name}` }, t(`nav.${name}`)));
  return el("header.top", {},
    el("a.skip", { href: "#content", onclick: skip }, t("board.skip")),
    el("div.in", {},
      el("a.brand", { href: "/" }, el("img", { src: "/ui/mark.svg", alt: "", width: 24, height: 24 }), "Factory"),
      el("nav", { "aria-label": t("board.main") }, links),
      el("div.sys", {}, machine(), languages(), themes())));
}

function skip(event) {
  event.preventDefault();
  const content = document.getElementById("content");
  content?.setAttribute("tabindex", "-1");
  content?.focus();
}

function machine() {
  const text = el("span");
  const line = el("span.hw", { "data-testid": "machine", hidden: true }, el("span.dot", { "aria-hidden": "true" }), text);
  api("/machine").then((told) => {
    text.textContent = lineOf(told);
    line.title = `${told.home ?? ""}`;
    line.hidden = false;
  }).catch(() => {});
  return line;
}

/** `CPU · 2 cores · 24 GiB · no GPU`, or with the GPUs in front. */
function lineOf({ cpus, memory, gpus }) {
  const gib = (size) => `${Math.round(size / 2 ** 30)} GiB`;
  const parts = [t("machine.cores", { n: cpus }), gib(memory)];
  if (!gpus.length) return ["CPU", ...parts, t("machine.no_gpu")].join(" · ");
  const names = gpus.map((one) => `${one.name} ${gib(one.memory)}`);
  const kinds = [...new Set(names)];
  return [...(kinds.length === 1 && names.length > 1 ? [`${names.length} × ${kinds[0]}`] : names), ...parts].join(" · ");
}

function languages() {
  const names = { en: "EN", zh: "中文" };
  const chosen = window.factory.language;
  return el("select", {
    "aria-label": t("board.language"), "data-testid": "language",
    onchange: (event) => window.factory.setLanguage(event.target.value),
  }, Object.entries(names).map(([code, name]) => el("option", { value: code, selected: code === chosen }, name)));
}

function themes() {
  const order = Object.keys(THEMES);
  const button = el("button.square", { type: "button", "data-testid": "theme" });
  const draw = () => {
    const now = window.factory.theme();
    const label = t("board.theme", { theme: t(`board.theme.${now}`) });
    button.replaceChildren(icon(THEMES[now], { size: 17 }));
    button.title = label;
    button.setAttribute("aria-label", label);
  };
  button.addEventListener("click", () => {
    window.factory.setTheme(order[(order.indexOf(window.factory.theme()) + 1) % order.length]);
    draw();
  });
  draw();
  return button;
}
