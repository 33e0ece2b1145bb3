// The job as YAML: follows the form, can be edited or pasted, and fills the form on Apply.
import { el, icon, t, toast, told } from "../base.js";

const COPY = "M9 9h10v11H9zM5 15V4h10";
const SAVE = "M12 4v11m0 0-4-4m4 4 4-4M5 20h14";

export function editor(form) {
  const area = el("textarea", {
    spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off",
    "aria-label": "job.yaml", "data-testid": "yaml", placeholder: t("new.yaml.empty"),
  });
  const paint = el("pre", { "aria-hidden": "true" });
  const apply = el("button.btn.small.primary", { type: "button", "data-testid": "apply" }, t("new.yaml.apply"));
  const undo = el("button.btn.small", { type: "button", "data-testid": "discard" }, t("new.yaml.discard"));
  const bar = el("div.edited", { hidden: true }, el("span", {}, t("new.yaml.edited")), el("span.btns", {}, undo, apply));
  const wrong = el("div.wrong", { role: "alert", "data-testid": "yaml-wrong" });
  const box = el("div.job-text", {},
    el("div.bar-top", {}, el("span.mono", {}, "job.yaml"), el("span.btns", {},
      tool("new.yaml.copy", COPY, async () => { await navigator.clipboard.writeText(area.value); toast(t("new.yaml.copied"), "ok"); }),
      tool("new.yaml.save", SAVE, () => save(area.value)))),
    el("div.code", {}, paint, area), bar, wrong);

  const draw = () => {
    paint.replaceChildren(...coloured(area.value));
    const lines = Math.min(26, Math.max(9, area.value.split("\n").length));
    area.style.height = paint.style.height = `${lines * 20 + 22}px`;
    bar.hidden = area.value === form.text;
  };
  const follow = () => {
    if (!bar.hidden && (document.activeElement === area || wrong.firstChild)) return; // somebody is writing, or has to mend it
    area.value = form.text;
    wrong.replaceChildren();
    draw();
  };
  area.addEventListener("input", () => {
    draw();
    if (bar.hidden) { wrong.replaceChildren(); form.release(); }
  });
  area.addEventListener("scroll", () => { paint.scrollTop = area.scrollTop; paint.scrollLeft = area.scrollLeft; });
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.altKey) { event.preventDefault(); apply.click(); }
  });
  const refuse = (findings) => {
    form.hold(findings.map((one) => ({ code: one.code, level: "error", field: null, message: told(one) })));
    wrong.replaceChildren(...form.held.map((one) => el("p", {}, one.message)));
  };
  const applied = async () => {
    const sent = area.value;
    try {
      bar.hidden = true;
      await form.fill(sent);
      if (area.value === sent) area.value = form.text; // else somebody wrote on meanwhile, and that stays
      wrong.replaceChildren();
    } catch (refusal) {
      refuse(refusal.findings?.length ? refusal.findings : [refusal]);
    }
    draw();
    return area.value === form.text;
  };
  apply.addEventListener("click", applied);
  // Whoever goes on in the form, or starts, with an edited text means that text.
  area.addEventListener("focusout", ({ relatedTarget: to }) => {
    if (!bar.hidden && !wrong.firstChild && to?.closest(".f, #have, .rows, .adder")) applied();
  });
  form.settled = () => (bar.hidden ? true : applied());
  undo.addEventListener("click", () => { bar.hidden = true; wrong.replaceChildren(); follow(); form.release(); });
  form.on("text", follow);
  form.on("show-text", () => { area.value = form.refused.text; draw(); refuse(form.refused.findings); area.focus(); });
  draw();
  return box;
}

function tool(word, path, act) {
  return el("button.tool", { type: "button", title: t(word), "aria-label": t(word), onclick: act }, icon(path, { size: 15 }));
}

function save(text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "application/yaml" })), download: "job.yaml" });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** YAML in colours: comments, keys, numbers, and what is left. */
function coloured(text) {
  return text.split("\n").flatMap((line) => {
    const [, code, comment] = /^((?:[^#"']|"(?:[^"\\]|\\.)*"|'[^']*'|(?<=\S)#)*)(#.*)?$/.exec(line) ?? [null, line, ""];
    const [, lead, key, rest] = /^(\s*(?:- )?)([\w.-]+:)?(.*)$/.exec(code);
    const value = /^\s*(-?[\d.]+(e-?\d+)?|true|false|null)\s*$/.test(rest) ? el("span.n", {}, rest) : inner(rest);
    return [lead, key ? el("span.k", {}, key) : "", value, comment ? el("span.c", {}, comment) : "", "\n"].flat();
  });
}

/** Keys inside braces. */
function inner(text) {
  if (!text.includes("{")) return text;
  return text.split(/([\w.-]+:)(?= )/).map((one, at) => (at % 2 ? el("span.k", {}, one) : one));
}
