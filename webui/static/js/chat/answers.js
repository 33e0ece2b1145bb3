// An answer as it comes: POST /api/chat/answer, server-sent events read from the body of a fetch.
import { api, Refusal, t, toast } from "../base.js";

/** Ask; `hear(event)` gets every event. Resolves with the last one; an aborted signal resolves with null. */
export async function answer(asked, hear, signal) {
  let response;
  try {
    response = await fetch("/api/chat/answer", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(asked),
      signal,
    });
  } catch (reason) {
    if (reason.name === "AbortError") return null;
    throw new Refusal(0, { code: "no_answer", message: t("board.offline") });
  }
  if (!response.ok) {
    const read = await response.json().catch(() => null);
    throw new Refusal(response.status, read?.error ?? { code: "http", message: `${response.status} ${response.statusText}` });
  }
  try {
    for await (const event of events(response.body)) {
      hear(event);
      if (event.event === "refused") throw new Refusal(422, event.findings[0]);
      if (event.event === "done") return event;
    }
  } catch (reason) {
    if (reason.name === "AbortError") return null;
    if (reason instanceof Refusal) throw reason;
    throw new Refusal(0, { code: "no_answer", message: t("board.offline") });
  }
  throw new Refusal(0, { code: "cut_off", message: t("chat.cut_off") });
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
  }
}

/** Ask an answer to end where it is; that it goes on although it was asked to is told. */
export const stop = (id) => api("/chat/stop", { id }).catch((reason) => toast(reason.message, "err"));
