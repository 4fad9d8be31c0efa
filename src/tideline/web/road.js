// The picture of an expressway: a hundred segments each way, their cars, speeds, tolls and accidents.
//
//   collection segments  --live query of one expressway-->  cells, the line that tells one, two lists
//   collection road      --live query-->                    the figures above
//
// A cell is a bar: as high as there are cars, orange where they are slow and blue where they are fast, a line
// under it where a toll is asked, a cross where an accident is. Only cells that changed are drawn again, once a frame.

import { short } from "./charts.js";
import { byId, element, setText } from "./dom.js";

const SEGMENTS = 100;
const WAYS = ["Eastbound", "Westbound"];
const [SLOW, FAST] = [10, 45]; // miles an hour, as Linear Road has them: below 40 there is a toll
const FULL = [100, 200, 500, 1000, 2000, 5000, 10_000]; // cars of a cell that is filled: what all cells fit in
const LISTED = 8;

const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : 0);

/** What there is to say of a segment: "Segment 42 eastbound: 63 cars at 54 mph, toll 12, no accident". */
export function told(way, s, { cars, speed, toll, accident } = {}) {
  const count = number(cars);
  const driving = speed === null || speed === undefined ? "" : ` at ${Math.round(speed)} mph`;
  const asked = number(toll) > 0 ? `toll ${toll}` : "no toll";
  return `Segment ${s} ${WAYS[way].toLowerCase()}: ${count} car${count === 1 ? "" : "s"}${driving}, ${asked}, ${accident ? "accident" : "no accident"}`;
}

export class Road {
  #db;
  #x = null;
  #live = null; // the segments of one expressway
  #now; // the figures
  #cells = [[], []];
  #known = [[], []]; // documents by direction and segment
  #chosen = [0, 0]; // direction and segment
  #dirty = new Set();
  #full = 0; // cars of a cell that is filled; it grows only, so that bars can be compared
  #frame = 0;

  constructor(db) {
    this.#db = db;
    WAYS.forEach((name, d) => this.#lane(byId(`lane-${d}`), name, d));
    byId("expressway").addEventListener("change", () => this.#follow(Number(byId("expressway").value)));
    this.#now = db.collection("road").watch();
    this.#now.subscribe(() => this.#figures());
    this.#follow(0);
    this.#choose(0, 0);
  }

  /** The name of a figure and what it is now. */
  #figures() {
    const facts = this.#now.result.find(({ id }) => id === "now");
    if (!facts) return;
    const two = (value) => String(number(value)).padStart(2, "0");
    const seconds = number(facts.second); // since the road was opened
    setText(byId("road-time"), `${Math.floor(seconds / 60)}:${two(seconds % 60)}`);
    for (const name of ["cars", "reports", "tolls", "accidents"]) setText(byId(`road-${name}`), short(number(facts[name])));
    setText(byId("road-worst"), short(Math.round(number(facts.worst_ms))));
    this.#expressways(Math.max(Math.ceil(number(facts.L)), 1));
  }

  #expressways(count) {
    const select = byId("expressway");
    if (select.options.length === count) return;
    const options = Array.from({ length: count }, (_, x) => element("option", { value: x }, String(x)));
    select.replaceChildren(...options);
    select.value = String(Math.min(this.#x, count - 1));
    byId("expressways").hidden = count === 1;
  }

  async #follow(x) {
    if (x === this.#x) return;
    this.#x = x;
    this.#live?.cancel();
    this.#known = [[], []];
    this.#full = 0;
    this.#touchAll();
    const live = this.#db.collection("segments").watch({ x });
    this.#live = live;
    live.subscribe((changes, how) => {
      if (live !== this.#live) return;
      if (how === "first") {
        for (const row of live.result) this.#keep(row);
        this.#touchAll();
      }
      for (const { document, before } of changes) {
        if (before && !document) this.#keep(before, true);
        else this.#keep(document);
      }
    });
  }

  #keep(row, gone = false) {
    if (!this.#cells[row.d]?.[row.s]) return;
    this.#known[row.d][row.s] = gone ? undefined : row;
    this.#touch(row.d, row.s);
  }

  #touch(d, s) {
    this.#dirty.add(d * SEGMENTS + s);
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #touchAll() { WAYS.forEach((_, d) => { for (let s = 0; s < SEGMENTS; s++) this.#touch(d, s); }); }

  // ---- cells --------------------------------------------------------------------------------------

  /** A row of cells that the arrow keys walk along: to screen readers a list of which one is chosen. */
  #lane(lane, name, d) {
    this.#cells[d] = Array.from({ length: SEGMENTS }, (_, s) =>
      element("span", { role: "option", id: `segment-${d}-${s}`, "aria-selected": "false", "data-s": s }, element("i")));
    lane.replaceChildren(...this.#cells[d]);
    lane.addEventListener("keydown", (event) => this.#key(event, lane, d));
    lane.addEventListener("focus", () => this.#choose(d, this.#chosen[0] === d ? this.#chosen[1] : 0));
    for (const kind of ["click", "pointerover"]) {
      lane.addEventListener(kind, ({ target }) => {
        const cell = target.closest("[data-s]");
        if (cell) this.#choose(d, Number(cell.dataset.s));
      });
    }
  }

  #key(event, lane, d) {
    const s = this.#chosen[1];
    const across = getComputedStyle(lane).gridTemplateColumns.split(" ").length;
    const to = {
      ArrowRight: s + 1, ArrowLeft: s - 1, ArrowDown: s + across, ArrowUp: s - across, PageDown: s + 10, PageUp: s - 10,
      Home: 0, End: SEGMENTS - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.#choose(d, Math.min(Math.max(to, 0), SEGMENTS - 1));
  }

  #choose(d, s) {
    const [before, old] = this.#chosen;
    this.#cells[before][old].setAttribute("aria-selected", "false");
    this.#cells[d][s].setAttribute("aria-selected", "true");
    byId(`lane-${before}`).removeAttribute("aria-activedescendant");
    byId(`lane-${d}`).setAttribute("aria-activedescendant", `segment-${d}-${s}`);
    this.#chosen = [d, s];
    this.#say();
  }

  #say() {
    const [d, s] = this.#chosen;
    setText(byId("segment-said"), `${told(d, s, this.#known[d][s])}.`);
  }

  /** Make room for the most cars of a segment: all bars are drawn again when that takes a larger scale. */
  #fit() {
    const most = Math.max(...this.#known.flat().map((row) => number(row?.cars)), 0);
    if (most <= this.#full && this.#full > 0) return;
    this.#full = FULL.find((full) => full >= most) ?? most;
    setText(byId("road-full"), String(this.#full));
    for (let place = 0; place < WAYS.length * SEGMENTS; place++) this.#dirty.add(place);
  }

  #draw() {
    this.#frame = 0;
    this.#fit();
    for (const place of this.#dirty) {
      const [d, s] = [Math.floor(place / SEGMENTS), place % SEGMENTS];
      const row = this.#known[d][s];
      const cell = this.#cells[d][s];
      const share = Math.min(number(row?.cars) / this.#full, 1);
      cell.style.setProperty("--cars", String(Math.round(share * 100) / 100));
      cell.style.setProperty("--fast", `${Math.round(Math.min(Math.max((number(row?.speed) - SLOW) / (FAST - SLOW), 0), 1) * 100)}%`);
      cell.toggleAttribute("data-toll", number(row?.toll) > 0);
      cell.toggleAttribute("data-accident", Boolean(row?.accident));
      cell.setAttribute("aria-label", told(d, s, row));
    }
    if (this.#dirty.size > 0) this.#lists();
    this.#dirty.clear();
    this.#say();
  }

  #lists() {
    const rows = this.#known.flat().filter(Boolean);
    const accidents = rows.filter(({ accident }) => accident).sort((a, b) => a.d - b.d || a.s - b.s);
    const tolls = rows.filter(({ toll }) => number(toll) > 0).sort((a, b) => b.toll - a.toll || a.d - b.d || a.s - b.s);
    list(byId("road-accident-list"), accidents, () => "", "No accident now.");
    list(byId("road-toll-list"), tolls, ({ toll }) => String(toll), "No toll is asked now.");
  }
}

/** The first few of some segments, each with what counts of it. */
function list(node, rows, what, none) {
  const lines = rows.slice(0, LISTED).map((row) => {
    const driving = row.speed === null || row.speed === undefined ? "" : `, ${Math.round(row.speed)} mph`;
    return [`${WAYS[row.d]} ${row.s}`, `${number(row.cars)} cars${driving}`, what(row)];
  });
  if (rows.length > LISTED) lines.push([`and ${rows.length - LISTED} more`, "", ""]);
  const key = JSON.stringify(lines);
  if (node.dataset.lines === key) return;
  node.dataset.lines = key;
  node.replaceChildren(...(lines.length > 0
    ? lines.map((parts) => element("li", {}, ...parts.map((part) => element("span", {}, part))))
    : [element("li", { class: "hint" }, none)]));
}
