// Texts in controls: put there as if they had been typed, and compared.

/** Put a text into a control as if it had been typed; the caret stays where somebody has it. */
export function putText(input, text) {
  if (input.value === text) return;
  const isHere = document.activeElement === input;
  const { selectionStart: from, selectionEnd: to, value: { length: old } } = input;
  const kind = input instanceof HTMLTextAreaElement ? HTMLTextAreaElement : HTMLInputElement;
  Object.getOwnPropertyDescriptor(kind.prototype, "value").set.call(input, text);
  input.dispatchEvent(new Event("input", { bubbles: true }));
  const kept = (at) => (at === old ? text.length : at);
  if (isHere) input.setSelectionRange(kept(from), kept(to));
}

export const same = (one, other) => JSON.stringify(one ?? null) === JSON.stringify(other ?? null);
