// A table body of which only the rows in sight exist. The page itself scrolls; every row has the same height.
import { eachFrame } from "./dom.js";

const SPARE = 8; // rows beyond each edge

export class Rows {
  /** `make(item)` builds a row element, `key(item)` names it, `sign(item)` changes when it must be built anew. */
  constructor(body, { make, key, sign, height }) {
    Object.assign(this, { body, make, key, sign, height });
    this.items = [];
    this.kept = new Map(); // key -> {sign, row}
    this.above = spacer();
    this.below = spacer();
    this.draw = eachFrame(() => this.render());
    window.addEventListener("scroll", this.draw, { passive: true });
    window.addEventListener("resize", this.draw);
    for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => this.held && setTimeout(this.draw));
  }

  set(items) {
    this.items = items;
    this.draw();
  }

  render() {
    const height = this.height();
    const top = this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.min(this.items.length, Math.floor(-top / height) - SPARE));
    const last = Math.min(this.items.length, Math.ceil((window.innerHeight - top) / height) + SPARE);
    const rows = [];
    const used = new Set();
    this.held = false;
    for (let at = first; at < last; at += 1) {
      const item = this.items[at];
      const key = this.key(item);
      const sign = this.sign(item);
      let kept = this.kept.get(key);
      // A press that ends on another element than it began on is no click: the row stays until it is over.
      const pressed = kept && kept.sign !== sign && kept.row.matches(":active");
      this.held ||= pressed;
      if (!kept || (kept.sign !== sign && !pressed)) {
        const focus = kept?.row.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
        const row = this.make(item);
        if (kept?.row.isConnected) kept.row.replaceWith(row);
        if (focus) row.querySelector(`[data-focus="${focus}"]`)?.focus();
        kept = { sign, row };
        this.kept.set(key, kept);
      }
      kept.row.setAttribute("aria-rowindex", at + 2);
      used.add(key);
      rows.push(kept.row);
    }
    for (const [key, { row }] of this.kept) if (!used.has(key) && !row.contains(document.activeElement)) this.kept.delete(key);
    size(this.above, first * height);
    size(this.below, (this.items.length - last) * height);
    const wanted = [this.above, ...rows, this.below];
    const now = this.body.children;
    if (wanted.length !== now.length || wanted.some((row, at) => row !== now[at])) this.place(wanted);
  }

  /** Puts rows where they belong and moves no row that is there already, so that the focus stays. */
  place(wanted) {
    const keep = new Set(wanted);
    for (const row of [...this.body.children]) if (!keep.has(row)) row.remove();
    wanted.forEach((row, at) => {
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
    });
  }

  /** Scrolls until an item can be seen. */
  reveal(at) {
    const height = this.height();
    const top = this.body.getBoundingClientRect().top + at * height;
    const header = 120;
    if (top < header) window.scrollBy({ top: top - header });
    else if (top + height > window.innerHeight - 20) window.scrollBy({ top: top + height - window.innerHeight + 20 });
    this.render();
  }
}

function spacer() {
  const row = document.createElement("tr");
  row.className = "spacer";
  row.setAttribute("aria-hidden", "true");
  row.append(document.createElement("td"));
  return row;
}

function size(row, height) {
  row.hidden = height <= 0;
  row.style.height = `${Math.max(0, height)}px`;
}
