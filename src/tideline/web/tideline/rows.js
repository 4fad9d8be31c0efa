// The rows of a live query, kept up to date by what the server says of them.
//
//   ["add", version, index | null, document]       ["change", version, index | null, key, {set}, [gone]]
//   ["remove", version, old_index | null, key]     ["changeIndex", version, old_index, index, key, {set}, [gone]]
//
// 1. With a sort, a limit or an offset every change has its place, and changes are applied in order. Without,
//    places are null and the newest row is the first, as with `find`.
// 2. A row that did not change stays the same object; one that did is a new object.
// 3. `result` is an array that never changes: after a change there is a new one.

const plainKey = (key) => (typeof key === "object" && key !== null ? JSON.stringify(key) : key);

/** A change that does not fit the rows: something is missing. */
export class Gap extends Error {}

export class Rows {
  #keyOf;
  #checked;
  #placed; // with places: the rows in order
  #newest; // without: key -> row, the oldest first
  #result = null;

  /**
   * `keyOf(row)`: what a row is known by. `placed`: whether changes have places. `checked`: whether the keys of
   * changes are compared; those of groups may be written in another way.
   */
  constructor(keyOf, placed, rows = [], checked = true) {
    this.#keyOf = keyOf;
    this.#checked = checked;
    this.#placed = placed ? [...rows] : null;
    if (!placed) this.#fill(rows);
  }

  get result() {
    this.#result ??= this.#placed ? [...this.#placed] : [...this.#newest.values()].reverse();
    return this.#result;
  }

  copy() { return new Rows(this.#keyOf, this.#placed !== null, this.result, this.#checked); }

  /** Apply what the server said; returns the change as its user is told of it. */
  apply([kind, version, ...said]) {
    let change;
    if (kind === "add") {
      const [index, document] = said;
      change = added(version, this.#keyOf(document), document, index);
    } else if (kind === "remove") {
      const [index, key] = said;
      const before = this.#there(key, index);
      change = removed(version, this.#keyOf(before), before, index);
    } else {
      if (kind === "change") said.unshift(said[0]); // it stays where it is
      const [old_index, index, key, fields, gone = []] = said;
      const before = this.#there(key, old_index);
      const document = { ...before, ...fields };
      for (const field of gone) delete document[field];
      const moved = gone.length === 0 && Object.keys(fields).length === 0; // and no more
      change = { kind, version, key: this.#keyOf(before), document: moved ? before : document, before, old_index, index, fields, gone };
    }
    this.adopt(change);
    return change;
  }

  /** Apply a change that another of these made. */
  adopt({ kind, key, document, old_index, index }) {
    this.#result = null;
    if (this.#placed) {
      if (kind !== "add") this.#placed.splice(old_index, 1);
      if (kind !== "remove") this.#placed.splice(index, 0, document);
    } else {
      this.#newest.delete(plainKey(key)); // what is changed becomes the newest
      if (kind !== "remove") this.#newest.set(plainKey(key), document);
    }
  }

  /** Another result in place of this one; returns the changes that lead from one to the other. */
  replace(rows, version) {
    const changes = [...(this.#placed ? this.#moves(rows, version) : this.#differences(rows, version))];
    for (const change of changes) this.adopt(change);
    if (!this.#placed) this.#fill(rows.map((row) => this.#row(this.#keyOf(row))));
    return changes;
  }

  #row(key, index) { return this.#placed ? this.#placed[index] : this.#newest.get(plainKey(key)); }

  #there(key, index) {
    const row = this.#row(key, index);
    const fits = row !== undefined && (!this.#checked || this.#keyOf(row) === key);
    if (!fits) throw new Gap(`no such row. key=${key}, index=${index}`);
    return row;
  }

  #fill(rows) {
    this.#newest = new Map(rows.map((row) => [plainKey(this.#keyOf(row)), row]).reverse());
    this.#result = null;
  }

  /** Without places: what went, then what came or changed, the oldest first. */
  *#differences(rows, version) {
    const wanted = new Set(rows.map((row) => plainKey(this.#keyOf(row))));
    for (const [key, row] of this.#newest) {
      if (!wanted.has(key)) yield removed(version, this.#keyOf(row), row, null);
    }
    for (const row of rows.toReversed()) {
      const key = this.#keyOf(row);
      const before = this.#row(key);
      if (before === undefined) yield added(version, key, row, null);
      else if (!same(before, row)) yield changed("change", version, key, before, row, null, null);
    }
  }

  /** With places: removes; moves, as few as there can be; then what came or changed, from the front. */
  *#moves(rows, version) {
    const keys = (list) => list.map((row) => plainKey(this.#keyOf(row)));
    const [wanted, had, old] = [keys(rows), keys(this.#placed), [...this.#placed]];
    const target = new Map(wanted.map((key, index) => [key, index]));
    for (let i = had.length - 1; i >= 0; i--) {
      if (target.has(had[i])) continue;
      yield removed(version, this.#keyOf(old[i]), old[i], i);
      old.splice(i, 1);
      had.splice(i, 1);
    }
    const known = new Map(had.map((key, i) => [key, old[i]]));
    const stay = longestRising(had.map((key) => target.get(key)));
    let last = null; // the row before, of those that were there
    for (const [i, key] of wanted.entries()) {
      if (!known.has(key)) continue;
      if (!stay.has(i)) {
        const from = had.indexOf(key);
        had.splice(from, 1);
        const to = last === null ? 0 : had.indexOf(last) + 1;
        had.splice(to, 0, key);
        if (from !== to) {
          const before = known.get(key);
          const after = same(before, rows[i]) ? before : rows[i];
          yield changed("changeIndex", version, this.#keyOf(before), before, after, from, to);
          known.set(key, after);
        }
      }
      last = key;
    }
    for (const [i, key] of wanted.entries()) {
      const before = known.get(key);
      if (before === undefined) yield added(version, this.#keyOf(rows[i]), rows[i], i);
      else if (!same(before, rows[i])) yield changed("change", version, this.#keyOf(before), before, rows[i], i, i);
    }
  }
}

const added = (version, key, document, index) =>
  ({ kind: "add", version, key, document, before: null, old_index: null, index, fields: document, gone: [] });

const removed = (version, key, before, old_index) =>
  ({ kind: "remove", version, key, document: null, before, old_index, index: null, fields: {}, gone: [] });

function changed(kind, version, key, before, document, old_index, index) {
  const set = Object.entries(document).filter(([name, value]) => !(Object.hasOwn(before, name) && same(before[name], value)));
  const gone = Object.keys(before).filter((name) => !Object.hasOwn(document, name));
  return { kind, version, key, document, before, old_index, index, fields: Object.fromEntries(set), gone };
}

/** Whether two JSON values say the same. */
export function same(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]));
}

/** The values of a longest rising subsequence: rows that need not move. */
function longestRising(values) {
  const ends = []; // ends[n]: the index of the smallest last value of a subsequence of n + 1
  const before = [];
  for (const [i, value] of values.entries()) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[ends[middle]] < value) low = middle + 1;
      else high = middle;
    }
    before[i] = ends[low - 1];
    ends[low] = i;
  }
  const found = new Set();
  for (let i = ends.at(-1); i !== undefined; i = before[i]) found.add(values[i]);
  return found;
}
