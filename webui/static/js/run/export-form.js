// The settings of an export, from the same spec as a job's, before it begins; what is refused stands under its field.
import { api, el, sentence, t, told } from "../base.js";
import { control } from "../control.js";
import { fill } from "../dom.js";

/** Ask for the settings of a target, and begin. Resolves to whether an export has begun. */
export async function exportForm(run, target) {
  const { lists } = await api(`/jobs/form?language=${window.factory.language}`);
  const fields = lists.export.find((one) => one.kind === target)?.fields ?? [];
  const wish = { name: target };
  const controls = fields.map((one) => control(`export-${one.name}`, one, one.value, (name, value) => { wish[name] = meant(one, value); }));
  const wrong = el("div", { role: "alert", "data-testid": "export-wrong" });
  const go = el("button.btn.primary", { type: "submit", "data-testid": "export-go" }, t("export.go"));
  const dialog = el("dialog.ask.export-form", { "aria-labelledby": "export-heading", "data-testid": "export-form" }, el("form", {},
    el("h2", { id: "export-heading" }, t(`export.${target}`)), el("p.sub", {}, t(`export.${target}_help`)),
    el("div.item-grid", {}, controls), wrong,
    el("div.btns", {}, el("button.btn", { type: "button", onclick: () => dialog.close() }, t("ask.cancel")), go)));
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { dialog.remove(); resolve(dialog.returnValue === "begun"); });
    dialog.querySelector("form").addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        await api(`/runs/${run}/exports`, wish);
        dialog.close("begun");
      } catch (refusal) {
        go.disabled = false;
        refuse(controls, wrong, refusal);
      }
    });
    dialog.showModal();
    go.focus();
  });
}

/** What a control shows as the API takes it: nothing, a number, or what is written. */
function meant(field, value) {
  if (value === "" || value === null) return null;
  return field.widget === "number" && Number.isFinite(+value) ? +value : value;
}

function refuse(controls, wrong, refusal) {
  const findings = refusal.findings?.length ? refusal.findings : [refusal];
  for (const one of controls) {
    one.querySelector(".told")?.remove();
    one.querySelector("input, select")?.removeAttribute("aria-invalid");
  }
  const homeless = findings.filter((finding) => {
    const home = controls.find((one) => one.dataset.name === finding.field);
    home?.append(el("div.told", {}, el("div.line.error", {}, el("span", {}, sentence(finding)))));
    home?.querySelector("input, select")?.setAttribute("aria-invalid", "true");
    return !home;
  });
  fill(wrong, homeless.map((one) => el("p.box.err", {}, told(one))));
  controls.map((one) => one.querySelector("[aria-invalid]")).find(Boolean)?.focus();
}
