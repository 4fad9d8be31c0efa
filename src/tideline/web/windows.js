// The view "Windows": an expressway, live, where the database has one; else its stream windows; else how to get one.
//
//   collections segments and road   ->  road.js, by live queries
//   stream windows                  ->  their figures, asked for once a second, and a form for a range with a mapper
//
// It has a connection of its own, which it lets go of while another view is in front.

import { short } from "./charts.js";
import { byId, element, setText } from "./dom.js";
import { Looking } from "./looking.js";
import { Road } from "./road.js";

const EVERY_MS = 1000;
const LOOK_EVERY = 3; // seconds between looks whether an expressway has come
const NONE = "This server has no stream windows yet: `tideline window create DATABASE NAME --span-s 300 --key FIELD` makes one.";
const SHOWN = 200; // characters of a result

const span = (seconds) => (seconds % 60 === 0 && seconds >= 120 ? `${seconds / 60} min` : `${seconds} s`);

export class Windows extends Looking {
  #road = null;
  #windows = []; // as the server lists them
  #rates = new Map(); // name -> {at, appended, rate}
  #ticks = 0;
  #asked = 0;

  /** `onstate(name)`: what its connection does. */
  constructor(onstate) {
    super("windows", onstate, EVERY_MS);
    this.db.onstate = (state) => { if (this.#road) onstate(state); };
    byId("range").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#range();
    });
    byId("range-window").addEventListener("change", () => this.#suggest());
    this.look();
  }

  show() {
    super.show();
    if (this.#road) this.db.reconnect();
  }

  hide() {
    super.hide();
    if (this.#road) this.db.disconnect();
  }

  /** See what there is; again after a while, until there is an expressway. */
  async ask(stands) {
    if (this.#road) return true;
    if (this.#ticks++ % LOOK_EVERY === 0 && await this.#hasRoad()) {
      byId("windows-said").hidden = byId("windows-list").hidden = true;
      byId("road").hidden = false;
      this.#road = new Road(this.db);
      if (!this.isShown) this.db.disconnect();
      return true;
    }
    this.#windows = await this.db.windows();
    if (stands()) {
      this.onstate("open");
      this.#list();
    }
    return false;
  }

  async #hasRoad() {
    const names = (await this.db.collections()).map(({ name }) => name);
    return names.includes("segments") && names.includes("road");
  }

  // ---- windows ------------------------------------------------------------------------------------

  #list() {
    const there = this.#windows.length > 0;
    this.say(there ? "" : NONE);
    byId("windows-list").hidden = !there;
    if (!there) return;
    const now = performance.now();
    const rows = this.#windows.map(({ name, settings, stats }) => {
      const { span_s, slide_s } = settings;
      const cells = [
        ["Span", slide_s === span_s ? span(span_s) : `${span(span_s)} by ${span(slide_s)}`],
        ["Key", Object.keys(settings.key).join(", ")],
        ["Rows", short(stats.rows)],
        ["Sub-windows", short(stats.sub_windows)],
        ["Rows a second", this.#rate(name, stats.appended, now)],
        ["Late", short(stats.late)],
      ];
      return element("tr", {}, element("th", { scope: "row" }, name),
        ...cells.map(([label, text]) => element("td", { "data-label": label }, text)));
    });
    byId("windows-rows").replaceChildren(...rows);
    const names = this.#windows.map(({ name }) => name);
    const select = byId("range-window");
    if ([...select.options].map(({ value }) => value).join("\n") === names.join("\n")) return;
    const before = select.value;
    select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
    if (names.includes(before)) select.value = before;
    this.#suggest();
  }

  #rate(name, appended, now) {
    const before = this.#rates.get(name);
    const rate = before && appended >= before.appended ? ((appended - before.appended) * 1000) / (now - before.at) : null;
    this.#rates.set(name, { at: now, appended });
    return rate === null ? "–" : short(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate));
  }

  /** A mapper that fits the window, where none was written. */
  #suggest() {
    const found = this.#windows.find(({ name }) => name === byId("range-window").value);
    const [value] = Object.keys(found?.settings.values ?? {});
    byId("range-map").placeholder = value ? `mean(${value})` : "count()";
    byId("range-keys").placeholder = "empty: all rows";
    setText(byId("range-result"), "");
    this.#wrong("");
  }

  async #range() {
    const asked = ++this.#asked;
    const map = byId("range-map").value.trim() || byId("range-map").placeholder;
    const text = byId("range-keys").value.trim();
    const last = byId("range-last").value.trim();
    let keys = null;
    try {
      keys = text === "" ? null : JSON.parse(text);
    } catch {
      this.#wrong("The key is not JSON: a list like [0, 1], or [[0, 1], [0, 3]] for a range.", "range-keys");
      return;
    }
    try {
      const window = this.db.window(byId("range-window").value);
      const result = await window.range(keys, { map, last_s: last === "" ? undefined : Number(last) });
      if (asked !== this.#asked) return;
      this.#wrong("");
      const shown = typeof result === "number" ? result.toLocaleString("en-US", { maximumFractionDigits: 3 }) : JSON.stringify(result);
      setText(byId("range-result"), `${map}: ${shown.length > SHOWN ? `${shown.slice(0, SHOWN)}…` : shown}`);
    } catch (error) {
      if (asked === this.#asked) this.#wrong(error.message);
    }
  }

  #wrong(text, field) {
    setText(byId("range-error"), text);
    if (text) setText(byId("range-result"), "");
    for (const id of ["range-keys", "range-map", "range-last"]) {
      if (id === field) byId(id).setAttribute("aria-invalid", "true");
      else byId(id).removeAttribute("aria-invalid");
    }
  }
}
