// What can be done with a run from more than one page.
import { api, bytes, t, toast } from "./base.js";
import { ask } from "./dom.js";

const name = (run) => run.title || run.name || run.id;

async function tried(work, done) {
  try {
    const answer = await work();
    if (done) toast(done(answer), "ok");
    return answer ?? true;
  } catch (reason) {
    toast(reason.message, "err");
    return false;
  }
}

const change = (run, body) => tried(() => api(`/runs/${run.id}`, body, { method: "PATCH" }));

/** Asks for a new name. False when it was left as it is. */
export async function renameRun(run) {
  const told = await ask({ title: t("run.rename"), yes: t("ask.save"), fields: [{ name: "title", label: t("run.new_name"), value: name(run), most: 100 }] });
  return told && change(run, { title: told.title });
}

/** Asks for tags and a note. False when they were left as they are. */
export async function editTags(run) {
  const told = await ask({ title: t("run.tags_of", { name: name(run) }), yes: t("ask.save"), fields: [
    { name: "tags", label: t("run.tags_label"), value: (run.tags || []).join(", "), most: 600, placeholder: t("run.tags_example") },
    { name: "note", label: t("run.note"), value: run.note || "", most: 4000, long: true },
  ] });
  if (!told) return false;
  const tags = told.tags.split(/[,，]/).map((tag) => tag.trim()).filter(Boolean);
  return change(run, { tags, note: told.note });
}

/** Asks, with what it would free, and moves a run to the trash. False when it stays. */
export async function deleteRun(run) {
  const size = run.bytes ?? (await api(`/runs/${run.id}`).then((told) => told.bytes, () => null));
  const sure = await ask({ title: t("run.delete_ask", { name: name(run) }), text: t("run.delete_text", { size: bytes(size) }), yes: t("run.delete"), danger: true });
  return sure && tried(() => api(`/runs/${run.id}`, undefined, { method: "DELETE" }), (told) => t("run.delete_done", { name: name(run), trash: told.trash ?? "" }));
}

/** Deletes several runs after one question. The ids that went. */
export async function deleteRuns(runs) {
  if (runs.length === 1) return (await deleteRun(runs[0])) ? [runs[0].id] : [];
  const sizes = await Promise.all(runs.map((run) => api(`/runs/${run.id}`).then((told) => told.bytes, () => 0)));
  const size = bytes(sizes.reduce((sum, one) => sum + one, 0));
  if (!(await ask({ title: t("run.delete_many", { n: runs.length }), text: t("run.delete_text", { size }), yes: t("run.delete"), danger: true }))) return [];
  const gone = [];
  for (const run of runs) if (await tried(() => api(`/runs/${run.id}`, undefined, { method: "DELETE" }))) gone.push(run.id);
  if (gone.length) toast(t("run.delete_many_done", { n: gone.length }), "ok");
  return gone;
}
