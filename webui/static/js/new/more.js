// "More settings": every field that is not placed by hand, folded away, with a search.
import { el, icon, t } from "../base.js";

export function more(form) {
  const head = document.getElementById("more-head");
  const body = document.getElementById("more-body");
  const search = el("input.field", {
    type: "search", placeholder: t("new.more.search"), "aria-label": t("new.more.search"), "data-testid": "more-search",
  });
  const none = el("p.sub", { hidden: true }, t("new.more.none"));
  const button = el("button.fold", {
    type: "button", "aria-expanded": "false", "aria-controls": "more-body", "aria-labelledby": "more-title",
    "aria-describedby": "more-about", "data-testid": "more",
    onclick: () => open(body.classList.contains("folded")),
  }, el("span.words", {}, el("span.h", { id: "more-title" }, t("new.more")), el("span.sub", { id: "more-about" }, t("new.more.lead"))), icon("M6 9l6 6 6-6", { size: 18 }));
  const open = (yes) => {
    body.classList.toggle("folded", !yes);
    button.setAttribute("aria-expanded", String(yes));
    search.hidden = !yes;
    if (yes) sift();
  };
  const sift = () => {
    const wanted = search.value.trim().toLowerCase();
    const isShown = (one) => !one.classList.contains("unfound") && getComputedStyle(one).display !== "none";
    for (const one of body.querySelectorAll(".f, .more-part")) one.classList.remove("unfound");
    let found = 0;
    for (const part of body.querySelectorAll(".more-part")) {
      const fields = [...part.querySelectorAll(".f")];
      for (const one of fields) {
        const text = `${one.textContent} ${one.id.replaceAll("-", ".")}`.toLowerCase();
        one.classList.toggle("unfound", wanted !== "" && !text.includes(wanted));
      }
      const some = fields.filter(isShown).length;
      part.classList.toggle("unfound", !some);
      found += some;
    }
    none.hidden = found > 0;
  };
  search.addEventListener("input", sift);
  head.append(el("h2", {}, button), search, none);
  open(false);
  form.on("open-more", () => open(true));
  form.on("kinds", () => { if (!body.classList.contains("folded")) sift(); });
}
