// The conversation outlives a reload of its tab, and nothing else: it is kept in this tab's own storage.
const STORE = "factory-conversation";

/** What was said in this tab, or null. */
export function kept() {
  try { return JSON.parse(sessionStorage.getItem(STORE)); } catch { return null; }
}

/** Keep what is said now; no turn, nothing kept. */
export function keep(chosen, turns) {
  const plain = turns.map((turn) => ({
    question: turn.question,
    columns: turn.answers.map((one) => one.column),
    answers: turn.answers.map(({ text, done, asked, told }) => ({ text, done: done ?? { reason: "stopped" }, asked, told })),
  }));
  try {
    if (plain.length) sessionStorage.setItem(STORE, JSON.stringify({ chosen, turns: plain }));
    else sessionStorage.removeItem(STORE);
  } catch { /* private windows keep nothing, and a very long talk is more than a tab may keep */ }
}
