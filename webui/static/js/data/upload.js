// Sends a file as it is, in one stream, and tells how far it is.
import { Refusal, t } from "../base.js";
import { ask } from "../dom.js";

/** {answered, abort}: `answered` resolves to the server's answer or rejects with a Refusal; `onProgress(sent, total)` in bytes. */
export function upload(path, file, onProgress) {
  const request = new XMLHttpRequest();
  const answered = new Promise((resolve, reject) => {
    const refused = (code, message) => reject(new Refusal(request.status, { code, message }));
    request.open("POST", `/api${path}`);
    request.responseType = "json";
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded, event.total || file.size);
    request.onload = () => {
      if (request.status < 300) resolve(request.response);
      else if (request.response?.error) reject(new Refusal(request.status, request.response.error));
      else refused("http", `${request.status} ${request.statusText}`);
    };
    request.onerror = () => refused("no_answer", t("board.offline"));
    request.onabort = () => refused("aborted", "");
    request.send(file);
  });
  return { answered, abort: () => request.abort() };
}

/** A refused upload whose name is taken: how to send it again, {name, replace}, or null. Nothing is lost either way. */
export async function again(refusal, name) {
  const free = refusal.code === "file_exists" && refusal.findings[0]?.params?.free;
  if (!free) return null;
  const chosen = await ask({
    title: t("data.exists", { name }), text: t("data.exists_text", { free }), yes: t("data.keep_both"), other: t("data.replace"),
  });
  return chosen === "other" ? { name, replace: true } : chosen ? { name: free } : { name: null };
}
