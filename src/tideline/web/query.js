// One of the two live tables: a form, the query it asks for, and its rows.
//
// Another query takes the place of the old one when its first result is there. One that is refused does not:
// the error stands at its field and the old one goes on.

import { InvalidRequest, Unauthorized } from "../tideline.js";
import { byId, setText } from "./dom.js";
import { SlidingTable } from "./sliding.js";

const AGAIN_MS = 2000; // until a query whose collection is gone, or whose server is, is asked again
const MOST = 200; // rows
const FIELDS = ["where", "sort", "limit", "offset", "by", "sum"];
const STATES = {
  opening: "asking", open: "live", away: "not connected", resuming: "catching up",
};

export class Query {
  #number;
  #form;
  #table;
  #collection;
  #key;
  #asked = 0; // the newest question of the form
  #again = 0;
  #dirty = false;

  /** on: {changes(query, changes, how), draw(), isCut()}: what has come, that there is something to draw, and
   *  whether the reader has cut the network. */
  constructor(number, on) {
    this.#number = number;
    this.on = on;
    this.live = null;
    this.section = byId(`query-${number}`);
    this.#form = this.section.querySelector("form");
    this.#table = new SlidingTable(this.section.querySelector("table"));
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.watch();
    });
    this.#field("where").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      this.#form.requestSubmit();
    });
    for (const radio of this.#form.querySelectorAll("[type=radio]")) {
      radio.addEventListener("change", () => {
        this.#kind(radio.value);
        if (radio.value === "rows" || this.#field("by").value.trim()) this.watch();
        else this.#field("by").focus();
      });
    }
    for (const name of FIELDS) this.#field(name).addEventListener("input", () => this.#error(""));
  }

  /** Ask this collection; `given`: {kind, where, sort, limit, by, sum} as texts for the form. */
  begin(collection, key, given) {
    this.#collection = collection;
    this.#key = key;
    for (const name of FIELDS) this.#field(name).value = given[name] ?? "";
    this.#kind(given.kind);
    return this.watch();
  }

  /** Ask what the form says. */
  async watch() {
    clearTimeout(this.#again);
    const asked = ++this.#asked;
    const question = this.#read();
    if (!question) return;
    const { groups, where, options } = question;
    const live = groups ? this.#collection.watchGroups(where, options) : this.#collection.watch(where, options);
    if (!this.live) this.#state("opening");
    try {
      await live.ready;
    } catch (error) {
      if (asked === this.#asked) this.#refused(error);
      return;
    }
    if (asked !== this.#asked) {
      live.cancel().catch(() => {});
      return;
    }
    this.#take(live, question, groups ? options.by : [this.#key]);
  }

  /** Show what has come; returns whether there was something. */
  draw() {
    if (!this.#dirty) return false;
    this.#dirty = false;
    const { live, known } = this;
    this.#table.show(live.result.slice(0, MOST), (row) => JSON.stringify(known.map((name) => row[name])), this.columns);
    this.section.querySelector(".none").hidden = live.result.length > 0;
    this.update();
    return true;
  }

  /** The line below the table. */
  update() {
    const { live } = this;
    if (!live) return;
    this.#state(live.state);
    const count = live.result.length;
    const rows = `${count.toLocaleString("en-US")} ${this.groups ? "group" : "row"}${count === 1 ? "" : "s"}`;
    const more = count > MOST ? `, the first ${MOST} shown` : "";
    const state = live.state === "ended" ? `ended: ${live.reason}` : STATES[live.state];
    setText(byId(`query-${this.#number}-state`), `${state} · version ${(live.version ?? 0).toLocaleString("en-US")} · ${rows}${more}`);
  }

  /** Show this query from now on. `known`: the fields that a row is known by. */
  #take(live, { groups, options }, known) {
    const before = this.live;
    const columns = [...known, ...(options.sort ?? []).map(([name]) => name)].filter((name) => !name.includes("."));
    Object.assign(this, { live, known, columns, groups });
    this.#table.clear();
    this.#error("");
    live.subscribe((changes, how) => {
      if (live !== this.live) return;
      this.on.changes(this, changes, how);
      this.#touch();
    });
    live.onended = () => {
      if (live !== this.live) return;
      this.update();
      if (live.reason !== "cancelled") this.#again = setTimeout(() => this.watch(), AGAIN_MS);
    };
    before?.cancel().catch(() => {});
    setText(byId(`query-${this.#number}-caption`), this.#words());
    this.#touch();
  }

  #touch() {
    this.#dirty = true;
    this.on.draw();
  }

  #words() {
    const parts = FIELDS.map((name) => [name, this.#field(name)])
      .filter(([, field]) => field.value.trim() && field.closest(".field").offsetParent)
      .map(([name, field]) => `${name} ${field.value.trim()}`);
    return `${this.groups ? "Groups" : "Rows"} that are kept up to date: ${parts.join(", ") || "everything"}`;
  }

  #field(name) { return byId(`${name}-${this.#number}`); }

  #kind(kind) {
    this.section.dataset.kind = kind;
    this.#form.querySelector(`[value=${kind}]`).checked = true;
  }

  /** What the form asks for; null, and an error shown, when it cannot be read. */
  #read() {
    this.#error("");
    const text = (name) => this.#field(name).value.trim();
    const list = (name) => text(name).split(",").map((each) => each.trim()).filter(Boolean);
    const groups = this.section.dataset.kind === "groups";
    let where = null;
    try {
      if (text("where")) where = JSON.parse(text("where"));
    } catch (error) {
      return this.#error(`This is not JSON: ${error.message}`, "where");
    }
    if (where !== null && (typeof where !== "object" || Array.isArray(where))) {
      return this.#error("A condition is a JSON object, such as {\"shop\": 7}.", "where");
    }
    if (groups) {
      const [by, sum] = [list("by"), list("sum")];
      if (by.length === 0) return this.#error("Say by which field to group.", "by");
      return { groups, where, options: { by, count: true, ...(sum.length > 0 ? { sum } : {}) } };
    }
    const options = {};
    const sort = list("sort").map((each) => /^(.*?)(?::(-?1))?$/.exec(each).slice(1)).map(([name, way]) => [name, Number(way ?? 1)]);
    const wrong = sort.find(([name]) => name === "" || name.includes(":"));
    if (wrong) return this.#error("Sort is FIELD, FIELD:1 or FIELD:-1, with commas between.", "sort");
    if (sort.length > 0) options.sort = sort;
    for (const name of ["limit", "offset"]) {
      const field = this.#field(name);
      if (field.validity.badInput || (text(name) !== "" && !Number.isInteger(Number(text(name))))) {
        return this.#error(`The ${name} is a whole number.`, name);
      }
      if (text(name) !== "") options[name] = Number(text(name));
    }
    return { groups, where, options };
  }

  #refused(error) {
    if (error instanceof InvalidRequest || error instanceof Unauthorized) {
      const named = FIELDS.filter((name) => name !== "where").find((name) => new RegExp(`\\b${name}\\b`).test(error.message));
      this.#error(error.message, named && this.#field(named).closest(".field").offsetParent ? named : "where");
      if (!this.live) this.#state("ended");
    } else {
      this.#error(this.on.isCut() ? "Not connected: this is asked when the network is back." : error.message);
      this.#again = setTimeout(() => this.watch(), AGAIN_MS);
    }
  }

  /** Show an error, at a field if it is one's; "" shows none. Returns null. */
  #error(text, name = null) {
    setText(byId(`query-${this.#number}-error`), text);
    for (const each of FIELDS) {
      if (each === name) this.#field(each).setAttribute("aria-invalid", "true");
      else this.#field(each).removeAttribute("aria-invalid");
    }
    return null;
  }

  #state(state) { this.section.dataset.state = state; }
}
