// The picture of one channel, collection or stream window: its memory, and of each index the components by level.
//
//   memory    ▒▒▒▒                        takes writes; frozen ones wait to be sealed
//   level 0   ▇▇ ▇ ▇                      the newest on the right
//   level 1   ▇▇▇▇▇▇▇▇▇▇
//
// A box is as wide as the square root of its bytes, so that small ones can be seen beside large ones, and paler the
// older it is. One line tells the box under the pointer, or the one that arrow keys have come to.

import { bytes, duration, short } from "./charts.js";
import { byId, element, setText } from "./dom.js";

const BOXES = 120; // of a level: the newest
const [NARROW, WIDE] = [10, 220]; // pixels
const FRESH_S = 5;
const HINT = "Point at a box, or go to it with Tab and the arrow keys: here is what it holds.";
const OLD_S = 3600;

export class Picture {
  #element;
  #said;
  #key = "";
  #now = 0;
  #texts = new Map(); // id of a box -> what there is to say of it
  #chosen = new Map(); // id of a list -> id of its chosen box

  /** element: where it is drawn. said: the line that tells one component. */
  constructor(where, said) {
    this.#element = where;
    this.#said = said;
  }

  /** Draw what the server told; `now` is its time, in milliseconds. */
  show({ dataset, trees, memory, described }, now) {
    this.#now = now;
    const key = `${dataset.kind} ${dataset.name}`;
    if (key !== this.#key) {
      this.#chosen.clear();
      setText(this.#said, HINT);
    }
    this.#key = key;
    setText(byId("store-inside-title"), `${dataset.name}`);
    setText(byId("store-inside-facts"), facts(dataset, described));
    this.#texts.clear();
    const largest = Math.max(1, ...memory.map((each) => each.size_bytes), ...trees.flatMap(({ components }) => components.map((each) => each.size_bytes)));
    const wide = (size) => Math.max(NARROW, Math.sqrt(size / largest) * WIDE);
    const focused = document.activeElement?.id;
    this.#element.replaceChildren(this.#memory(memory, wide), ...trees.map((tree, at) => this.#tree(tree, at, wide)));
    if (focused && this.#element.querySelector(`#${CSS.escape(focused)}`)) byId(focused).focus();
    for (const id of this.#chosen.values()) if (byId(id) && document.activeElement === byId(id).closest("[role=listbox]")) this.#tell(id);
  }

  #memory(memory, wide) {
    const boxes = memory.map((each, at) => ({
      id: `memory-${at}`, width: wide(each.size_bytes), kind: each.frozen ? "frozen" : "memory", age: 0, fresh: false,
      text: `${each.name}${each.frozen ? ", waits to be sealed" : ""}: ${short(each.rows)} rows, ${bytes(each.size_bytes)}`,
    }));
    return element("section", { class: "tree" }, element("h3", {}, "Memory"), this.#level("in memory", "memory-list", boxes, 0));
  }

  #tree({ name, kind, policy, components }, number, wide) {
    const rows = components.reduce((total, each) => total + each.rows, 0);
    const size = components.reduce((total, each) => total + each.size_bytes, 0);
    const levels = new Map();
    for (const each of components) levels.set(each.level, [...(levels.get(each.level) ?? []), each]);
    const said = components.length ? `${components.length} component${components.length === 1 ? "" : "s"}, ${short(rows)} rows, ${bytes(size)}` : "nothing on disk yet";
    const section = element("section", { class: "tree" }, element("h3", {}, name, " ", element("small", {}, `${kind}, policy ${policy} · ${said}`)));
    for (const level of [...levels.keys()].sort((a, b) => a - b)) {
      const all = levels.get(level);
      const shown = all.slice(-BOXES);
      const boxes = shown.map((each) => {
        const age = each.made === null ? null : Math.max(0, (this.#now - Date.parse(each.made)) / 1000);
        return {
          id: `component-${number}-${each.name.replace(/\W/g, "-")}`, width: wide(each.size_bytes), kind: "component", age, fresh: age !== null && age < FRESH_S,
          text: `${each.name}: level ${level}, ${short(each.rows)} rows, ${bytes(each.size_bytes)}${age === null ? "" : `, written ${duration(age)} ago`}`,
        };
      });
      section.append(this.#level(`level ${level}`, `level-${number}-${level}`, boxes, all.length - shown.length, name));
    }
    return section;
  }

  /** One row of boxes: a list box, as the keyboard and screen readers know it. */
  #level(label, id, boxes, left, tree = "") {
    const list = element("div", {
      class: "level", role: "listbox", id, tabindex: "0", "aria-label": `${tree ? `${tree}, ` : ""}${label}`,
      keydown: (event) => this.#press(event, list, boxes), focus: () => this.#choose(list, this.#chosen.get(id) ?? boxes.at(-1)?.id),
      pointerover: (event) => { if (event.target.dataset.box) this.#tell(event.target.id); },
      click: (event) => { if (event.target.dataset.box) this.#choose(list, event.target.id); },
    }, ...boxes.map((box) => {
      this.#texts.set(box.id, box.text);
      const old = box.age === null ? 1 : Math.min(Math.log1p(box.age) / Math.log1p(OLD_S), 1);
      const made = element("span", {
        role: "option", id: box.id, "data-box": box.kind, "aria-label": box.text, "aria-selected": String(this.#chosen.get(id) === box.id),
        ...(box.fresh ? { class: "fresh" } : {}),
      });
      made.style.width = `${box.width.toFixed(0)}px`; // no attribute: the page's policy refuses those
      made.style.setProperty("--old", `${Math.round(old * 55)}%`);
      return made;
    }));
    const row = element("div", { class: "level-row" }, element("span", { class: "fine" }, label), list);
    if (left > 0) row.append(element("span", { class: "fine" }, `and ${left} older`));
    return row;
  }

  #press(event, list, boxes) {
    const at = boxes.findIndex(({ id }) => id === this.#chosen.get(list.id));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: boxes.length - 1 }[event.key];
    if (to === undefined || !boxes.length) return;
    event.preventDefault();
    this.#choose(list, boxes[Math.min(Math.max(to, 0), boxes.length - 1)].id);
  }

  #choose(list, id) {
    if (!id || !byId(id)) return;
    this.#chosen.set(list.id, id);
    for (const box of list.children) box.setAttribute("aria-selected", String(box.id === id));
    list.setAttribute("aria-activedescendant", id);
    byId(id).scrollIntoView({ block: "nearest", inline: "nearest" });
    this.#tell(id);
  }

  #tell(id) { setText(this.#said, this.#texts.get(id) ?? ""); }
}

/** What it holds and has done, by its own statistics. */
function facts({ kind, bytes_recovery: recovery }, { stats, layout, space, indexes, settings, key }) {
  const log = `a start reads ${bytes(recovery)} of its log`;
  if (kind === "channel") {
    return `channel, ${space.kind}, layout ${layout} · ${short(stats.events)} valid events, ${short(stats.subscriptions)} open subscriptions, ` +
      `${short(stats.answers)} answers, ${short(stats.dropped)} windows and components dropped whole · ${log}`;
  }
  if (kind === "window") {
    return `stream window of ${duration(settings.span_s)} · ${short(stats.rows)} rows in ${short(stats.sub_windows)} sub-windows, ` +
      `${short(stats.late)} late, ${short(stats.watches)} watch · ${log}`;
  }
  const count = Object.keys(indexes).length;
  const amplified = stats?.bytes_sealed ? `, each byte written ${((stats.bytes_sealed + stats.bytes_merged) / stats.bytes_sealed).toFixed(1)} times` : "";
  const counted = stats ? `${short(stats.versions)} versions, ${short(stats.standing_queries)} standing queries, ${short(stats.finds)} finds${amplified}` : "";
  return `collection by ${key}, ${count} index${count === 1 ? "" : "es"} · ${counted} · ${log}`;
}
