// A page that says what is missing, until there is something to talk to.
import { api, el, t } from "./base.js";
import { fill } from "./dom.js";

/** Fill the page. */
export async function start(root) {
  const { runs } = await api("/runs");
  const trained = runs.filter((run) => run.state === "succeeded");
  fill(root.querySelector(".body"), el("section.card.empty", { "data-testid": "chat-missing" },
    el("h2", {}, t(trained.length ? "chat.not_yet" : "chat.nothing")),
    el("p.sub", {}, t(trained.length ? "chat.not_yet_text" : "chat.nothing_text")),
    el("p.actions", {}, trained.length ? el("a.btn", { href: `/run?id=${trained[0].id}` }, t("chat.see_samples")) : el("a.btn.primary", { href: "/new" }, t("nav.new")))));
}
