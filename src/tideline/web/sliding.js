// A table whose rows slide to their new places.
//
// Each row keeps its element as long as its key is in the result. To move: note where every row is seen, put the
// elements in order, then let each begin where it was seen and slide to where it is. A cell that changed is
// marked for a moment. Whoever prefers less motion sees the marks and no sliding.

import { element, setText } from "./dom.js";
import { same } from "../tideline/rows.js";

const SLIDE_MS = 450;
const MARK_MS = 1200;
const LONGEST = 80; // letters of a cell
const WIDEST = 24; // columns: what more fields hold is not shown

export class SlidingTable {
  #head;
  #body;
  #table;
  #rows = new Map(); // key -> {tr, cells, row, sliding}
  #columns = [];
  #calm = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(table) {
    this.#table = table;
    this.#head = table.tHead;
    this.#body = table.tBodies[0];
  }

  /** Forget what is shown: another query's rows are other rows, though they have the same keys. */
  clear() {
    this.#rows.clear();
    this.#columns = [];
    this.#head.replaceChildren();
    this.#body.replaceChildren();
  }

  /** Show a result. `keyOf(row)` is a text, `first` the columns that come first. */
  show(result, keyOf, first) {
    const fresh = this.#rows.size === 0;
    const { top } = this.#body.getBoundingClientRect();
    const seen = new Map([...this.#rows].map(([key, { tr }]) => [key, tr.getBoundingClientRect().top - top]));
    this.#setColumns(result, first);
    const kept = new Map();
    let next = this.#body.firstElementChild;
    for (const row of result) {
      const key = keyOf(row);
      const shown = this.#rows.get(key) ?? this.#make(key);
      this.#fill(shown, row);
      this.#rows.delete(key);
      kept.set(key, shown);
      if (shown.tr === next) next = next.nextElementSibling;
      else this.#body.insertBefore(shown.tr, next);
    }
    for (const { tr } of this.#rows.values()) tr.remove();
    this.#rows = kept;
    if (this.#calm.matches || fresh) return;
    // All is read before anything moves: one layout, however many rows there are.
    const moves = [...kept].map(([key, shown]) => {
      const place = shown.tr.offsetTop - this.#body.offsetTop; // whatever slides it now
      return [shown, seen.get(key) - place];
    });
    for (const [shown, moved] of moves) {
      if (Number.isNaN(moved)) this.#slide(shown, [{ opacity: 0 }, { opacity: 1 }], false); // it was not there
      else if (Math.abs(moved) > 0.5) {
        this.#slide(shown, [{ transform: `translateY(${moved}px)` }, { transform: "none" }], moved > 0);
      }
    }
  }

  #slide(shown, frames, above) {
    shown.sliding?.cancel();
    shown.tr.classList.toggle("above", above); // who rises passes in front
    shown.sliding = shown.tr.animate(frames, { duration: SLIDE_MS, easing: "cubic-bezier(.2, .7, .2, 1)" });
  }

  #setColumns(result, first) {
    const names = new Set(this.#columns.length > 0 ? this.#columns : first);
    for (const row of result) for (const name of Object.keys(row)) if (names.size < WIDEST) names.add(name);
    if (names.size === this.#columns.length) return;
    this.#columns = [...names];
    this.#table.style.setProperty("--columns", this.#columns.length);
    this.#head.replaceChildren(element("tr", {}, ...this.#columns.map((name) => element("th", { scope: "col", title: name }, name))));
    for (const { tr, cells } of this.#rows.values()) this.#addCells(tr, cells);
  }

  #make(key) {
    const shown = { tr: element("tr", { "data-key": key }), cells: new Map(), row: null, sliding: null };
    this.#addCells(shown.tr, shown.cells);
    return shown;
  }

  #addCells(tr, cells) {
    for (const name of this.#columns) {
      if (cells.has(name)) continue;
      const cell = element("td");
      cells.set(name, cell);
      tr.append(cell);
    }
  }

  #fill(shown, row) {
    const before = shown.row;
    if (before === row) return; // what did not change is the same object
    shown.row = row;
    for (const [index, name] of this.#columns.entries()) {
      if (before && same(before[name], row[name])) continue;
      const cell = shown.cells.get(name);
      const text = textOf(row[name], name);
      setText(cell, text);
      cell.title = text;
      cell.classList.toggle("number", typeof row[name] === "number");
      if (this.#head.rows[0].cells[index].className !== cell.className) this.#head.rows[0].cells[index].className = cell.className;
      if (before) this.#mark(cell);
    }
  }

  #mark(cell) {
    cell.classList.add("changed");
    clearTimeout(cell.unmark);
    cell.unmark = setTimeout(() => cell.classList.remove("changed"), MARK_MS);
  }
}

/** A value as a cell shows it. */
export function textOf(value, name) {
  if (value === undefined || value === null) return "";
  if (name === "at" && typeof value === "number") return new Date(value).toLocaleTimeString("en-GB");
  if (typeof value === "number") {
    const digits = Number.isInteger(value) ? 0 : 2;
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}
