// The search box of the map: places of a collection, roughly by name, in the part of the map that is seen.
//
//   what is typed, and the view  ->  a condition  ->  watch  ->  list and marks, kept up to date
//
// A word may be written wrongly ($fuzzy) or not be finished ($contains). The result is a live query: a place that
// opens, closes or is renamed while somebody looks comes and goes by itself. One query stands at a time.
//
// The collection is that of ?places=, else `places`; its place and its name are the fields with a spatial and with
// a text index, else `at` and `name`. Where there is none, there is no box.

import { byId, element, setText } from "./dom.js";

const TYPED_MS = 150;
const MOVED_MS = 300;
const LOOK_MS = 5000; // for the collection
const MOST = 30;
const SIMILARITY = 0.66; // one letter of three to five may be wrong, two of six to eight
const SHORT = 3; // letters of a word: below it, wrong ones would find everything
const CLOSE_M = 12_000; // across the map, around a place that was chosen
const TEXT_KINDS = ["ngrams", "words"];

export class Search {
  #db;
  #stage;
  #collection = null;
  #live = null;
  #fields = { at: "at", name: "name" };
  #key = "id";
  #asked = "";
  #timer = 0;
  #frame = 0;
  #active = -1;
  #rows = [];
  #known = new Set(); // keys that were in the first result: what comes later is marked
  #seen = -1; // version of the view
  #chosen = false; // a place was chosen: the list is closed until something is typed

  constructor(db, stage) {
    this.#db = db;
    this.#stage = stage;
    this.input = byId("search-text");
    this.list = byId("search-list");
    this.input.addEventListener("input", () => {
      this.#chosen = false;
      this.#later(TYPED_MS);
    });
    this.input.addEventListener("keydown", (event) => this.#press(event));
    this.input.addEventListener("focus", () => this.#open(true));
    byId("search").addEventListener("focusout", ({ relatedTarget }) => {
      if (!byId("search").contains(relatedTarget)) this.#open(false);
    });
    byId("search").addEventListener("submit", (event) => event.preventDefault());
    byId("search-clear").addEventListener("click", () => this.clear());
    byId("map").addEventListener("keydown", (event) => {
      if (event.key === "/") { event.preventDefault(); this.input.focus(); }
    });
  }

  /** Find the collection; the box is there as soon as it is. */
  async begin() {
    const wanted = new URLSearchParams(location.search).get("places") ?? "places";
    try {
      const found = (await this.#db.collections()).find(({ name }) => name === wanted);
      if (!found) {
        setTimeout(() => this.begin(), LOOK_MS);
        return;
      }
      this.#key = found.key;
      this.#fields = fieldsOf(found.indexes ?? {});
      this.#collection = this.#db.collection(wanted);
      byId("search").hidden = false;
      setInterval(() => this.#follow(), MOVED_MS);
    } catch (error) {
      if (error.status !== 401 && error.status !== 403) setTimeout(() => this.begin(), LOOK_MS);
    }
  }

  clear() {
    this.input.value = "";
    this.#later(0);
    this.input.focus();
  }

  // ---- asking ---------------------------------------------------------------------------------------

  #later(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), ms);
  }

  /** The map was moved: ask for the part that is seen now, once it rests. */
  #follow() {
    const { version } = this.#stage.view;
    if (version === this.#seen) return;
    this.#seen = version;
    if (this.input.value.trim()) this.#later(MOVED_MS);
  }

  #ask() {
    const words = this.input.value.toLowerCase().match(/[\p{L}\p{N}\p{M}]+/gu)?.slice(0, 8) ?? [];
    const where = words.length ? this.#condition(words) : null;
    const asked = JSON.stringify(where);
    if (asked === this.#asked) return;
    this.#asked = asked;
    this.#live?.cancel();
    this.#live = null;
    byId("search-clear").hidden = !words.length;
    if (!where) {
      this.#show([], "");
      return;
    }
    const live = this.#collection.watch(where, { sort: { [this.#fields.name]: 1 }, limit: MOST });
    this.#live = live;
    live.subscribe((_, how) => {
      if (live !== this.#live) return;
      if (how === "first") this.#known = new Set(live.result.map((row) => row[this.#key]));
      this.#frame ||= requestAnimationFrame(() => {
        this.#frame = 0;
        if (live === this.#live) this.#show(live.result, this.#said(live.result.length));
      });
    });
    live.onended = (_, error) => {
      if (live === this.#live && error) this.#show([], error.message);
    };
  }

  #condition(words) {
    const { view } = this.#stage;
    const round = (value, by) => Math.round(value * by) / by;
    const fine = view.closeness() > 8 ? 10_000 : 1000;
    const clamp = (value, most) => Math.min(Math.max(value, -most), most);
    const box = [
      [round(clamp(view.lon(0), 180), fine), round(clamp(view.lat(view.height), 90), fine)],
      [round(clamp(view.lon(view.width), 180), fine), round(clamp(view.lat(0), 90), fine)],
    ];
    const { at, name } = this.#fields;
    const each = words.map((word) => {
      const part = { [name]: { $contains: word } };
      if (word.length < SHORT || word.length > 64) return part;
      return { $or: [part, { [name]: { $fuzzy: { words: [word], similarity: SIMILARITY } } }] };
    });
    return { $and: [{ [at]: { $geoWithin: { $box: box } } }, ...each] };
  }

  #said(count) {
    if (!count) return "No place of this name in view. It shows here when there is one.";
    const many = count === MOST ? `The first ${MOST} places` : `${count} place${count === 1 ? "" : "s"}`;
    return `${many} in view, live`;
  }

  // ---- showing --------------------------------------------------------------------------------------

  #show(rows, said) {
    const active = this.#rows[this.#active]?.[this.#key];
    this.#rows = rows;
    this.#active = rows.findIndex((row) => row[this.#key] === active);
    this.list.replaceChildren(...rows.map((row, i) => this.#item(row, i)));
    setText(byId("search-said"), said);
    this.#open(document.activeElement === this.input || this.list.contains(document.activeElement));
    this.#mark();
  }

  #item(row, i) {
    const name = String(row[this.#fields.name] ?? row[this.#key]);
    const about = [row.kind, row.town].filter((part) => typeof part === "string").join(", ");
    const item = element("li", {
      id: `search-${i}`, role: "option", "aria-selected": String(i === this.#active),
      class: this.#known.has(row[this.#key]) ? "" : "new",
      pointerdown: (event) => { event.preventDefault(); this.#choose(i); },
    }, element("span", { class: "name" }, name));
    if (about) item.append(element("span", { class: "fine" }, about));
    return item;
  }

  #open(open) {
    const shown = open && !this.#chosen && this.input.value.trim() !== "";
    byId("search-found").hidden = !shown;
    this.input.setAttribute("aria-expanded", String(shown && this.#rows.length > 0));
  }

  /** The list's active row, and the marks on the map. */
  #mark() {
    [...this.list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === this.#active)));
    if (this.#active >= 0) {
      this.input.setAttribute("aria-activedescendant", `search-${this.#active}`);
      this.list.children[this.#active].scrollIntoView({ block: "nearest" });
    } else {
      this.input.removeAttribute("aria-activedescendant");
    }
    this.#stage.showPlaces(this.#rows.flatMap((row, i) => {
      const at = pointOf(row[this.#fields.at]);
      return at ? [{ lon: at[0], lat: at[1], name: String(row[this.#fields.name] ?? ""), active: i === this.#active }] : [];
    }));
  }

  #press(event) {
    const count = this.#rows.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && count) {
      event.preventDefault();
      this.#chosen = false;
      this.#open(true);
      const none = this.#active < 0 && step < 0; // up from the box is the last
      this.#active = none ? count - 1 : (this.#active + step + count) % count;
      this.#mark();
    } else if (event.key === "Enter" && count) {
      event.preventDefault();
      this.#choose(Math.max(this.#active, 0));
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.clear();
    }
  }

  /** Bring a place into the middle of the map. */
  #choose(i) {
    const at = pointOf(this.#rows[i]?.[this.#fields.at]);
    if (!at) return;
    this.#active = i;
    this.#chosen = true;
    this.#mark();
    this.#stage.view.show(at[0], at[1], CLOSE_M);
    this.#open(false);
  }
}

/** The place and the name of a collection's documents, by its indexes. */
function fieldsOf(indexes) {
  const found = { at: "at", name: "name" };
  for (const [field, spec] of Object.entries(indexes)) {
    const kind = typeof spec === "string" ? spec : spec.kind;
    const [first, second] = field.split(",");
    if (kind === "fuzzy" && second) Object.assign(found, { at: first, name: second });
    else if (kind === "spatial") found.at = field;
    else if (TEXT_KINDS.includes(kind)) found.name = field;
  }
  return found;
}

/** [lon, lat] of a point; null for anything else. */
function pointOf(place) {
  const at = Array.isArray(place) ? place : place?.type === "Point" ? place.coordinates : null;
  return Array.isArray(at) && typeof at[0] === "number" && typeof at[1] === "number" ? at : null;
}
