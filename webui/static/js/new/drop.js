// Drop a file: it is uploaded with its progress, looked at, and the form follows what it holds.
import { bytes, el, icon, t, toast } from "../base.js";
import { again, upload } from "../data/upload.js";
import { query } from "../dom.js";

const UP = "M12 16V5m0 0L8 9m4-4 4 4M5 16v2.5h14V16";

export function drop(form) {
  const file = el("input", { type: "file", class: "hide", multiple: true, id: "drop-file", "data-testid": "drop-file" });
  const state = el("span", {}, t("new.drop"));
  const bar = el("div.bar", { hidden: true, role: "progressbar", "aria-label": t("new.drop.uploading") }, el("i", { style: "background:var(--c1)" }));
  const zone = el("label.dropzone", { for: "drop-file", "data-testid": "drop" }, icon(UP, { size: 20 }), el("span.words", {}, state, bar), file);
  document.getElementById("drop").append(zone);
  const take = async (files) => {
    for (const one of files) await send(form, one, state, bar);
    state.textContent = t("new.drop");
    file.value = "";
  };
  file.addEventListener("change", () => take([...file.files]));
  for (const name of ["dragover", "dragenter"]) zone.addEventListener(name, (event) => { event.preventDefault(); zone.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) zone.addEventListener(name, () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => { event.preventDefault(); take([...event.dataTransfer.files]); });
}

async function send(form, file, state, bar, name = file.name, replace = false) {
  state.textContent = t("new.drop.sending", { name: file.name, size: bytes(file.size) });
  bar.hidden = false;
  try {
    const sending = upload(`/data${query({ name, replace: replace || null })}`, file, (sent, all) => { bar.firstChild.style.width = `${(100 * sent) / (all || 1)}%`; });
    const { file: { path } } = await sending.answered;
    form.tell("files");
    const others = (form.values.data ?? []).filter((one) => !one.startsWith("data/samples/"));
    await form.change({ data: [...new Set([...others, path])] }, { fill: true });
    form.tell("data-chosen");
  } catch (refusal) {
    const next = await again(refusal, name);
    if (next?.name) await send(form, file, state, bar, next.name, next.replace);
    else if (!next) toast(refusal.message, "err");
  } finally {
    bar.hidden = true;
    bar.firstChild.style.width = "0";
  }
}
