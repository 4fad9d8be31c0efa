// Stream windows: the rows of the last so many seconds, found by key, and panes told at every slide.
//
//   const cars = db.window("cars", { span_s: 300, slide_s: 60, key: ["seg", "vid"], values: { vel: "int32" } });
//   await cars.append([{ seg: 42, vid: 7, vel: 50 }]);
//   await cars.range([42], { map: "mean(vel)" });
//   for await (const pane of cars.watch([42], { map: "mean(vel)" })) console.log(pane.until, pane.value);

import { InvalidRequest } from "./errors.js";
import { allDefined } from "./http.js";
import { Stream } from "./streams.js";
import { Named } from "./verbs.js";

/** The rows of the last so many seconds. */
export class StreamWindow extends Named {
  #live;

  constructor(http, live, name, settings) {
    super(http, "windows", name, settings);
    this.#live = live;
  }

  /**
   * Store a row or many: `{stored, late, rejected, repeated}`. With `once`, a writer and a number that rises, a
   * batch that has landed before changes nothing, and it is sent again when the connection breaks.
   */
  append(rows, { once } = {}) {
    const given = Array.isArray(rows) ? rows : [rows];
    allDefined(given, "rows");
    return this.call("POST", ["append"], { body: { rows: given, once }, again: once !== undefined });
  }

  /** The newest row of a key, or null; an array of all of them where the window keeps all. */
  get(key, { last_s } = {}) { return this.#ask("get", { key, last_s }); }

  /** The newest row of each key, in the order of the keys; `found` says whether there is one. */
  getMany(keys, { last_s } = {}) { return this.#ask("get_many", { keys, last_s }); }

  /** The rows whose keys begin with `keys`, or lie in [low, high); or what `map` makes of them. */
  range(keys = null, { map, last_s, closed } = {}) { return this.#ask("range", { keys, map, last_s, closed }); }

  /** The rows that meet a condition, with a $near the nearest first; or what `map` makes of them. */
  find(where = null, { keys, newest, limit, map, last_s, closed } = {}) {
    return this.#ask("find", { where, keys, newest, limit, map, last_s, closed });
  }

  /** What `range` gives with this map, told at each slide; with `where` or `newest`, what `find` gives. */
  watch(keys = null, { map, where, newest, last_s } = {}) {
    if (map === undefined) throw new InvalidRequest('watch needs a map: watch([42], { map: "mean(vel)" })');
    allDefined({ keys, map, where: where ?? null }, "watch");
    return new Panes(this, this.#live, { keys, map, where, newest, last_s });
  }

  async #ask(verb, body) {
    for (const name of ["key", "keys", "map", "where"]) allDefined(body[name] ?? null, name);
    return (await this.call("POST", [verb], { body, again: true })).result;
  }
}

/** Panes as a window slides: `{since, until, value, missed}`. */
export class Panes extends Stream {
  #window;
  #live;
  #asked;
  #slide_ms = 0;
  #until = null; // of the last pane that came

  constructor(window, live, asked) {
    super();
    this.#window = window;
    this.#live = live;
    this.#asked = asked;
    /** Resolves when it follows: every slide from then on is told. */
    this.ready = window.info().then(({ settings }) => {
      this.#slide_ms = settings.slide_s * 1000;
      return live.follow(this);
    });
    this.ready.catch((error) => this.end("refused", error));
  }

  /** Called with each pane. */
  get onpane() { return this.listener; }

  set onpane(listener) { this.listen(listener); }

  /** End it. Leaving a `for await` does so too. */
  async cancel() {
    await this.ready.catch(() => {});
    if (this.state === "away") this.#live.drop(this); // it ended on the server with its connection
    else await this.#live.finish(this, "cancel");
  }

  async return() {
    await this.cancel();
    return { value: undefined, done: true };
  }

  request() { return { do: "watch_window", window: this.#window.name, ...this.#asked }; }

  hear({ watching, pane }) {
    // A server that takes the place of another one may slide later than that did.
    if (pane && (this.#until === null || Date.parse(pane.until) > this.#until)) this.deliver(this.#counted(pane), "live");
    return watching;
  }

  /** The server keeps no panes for who is away: what slid by meanwhile is counted here. */
  #counted(pane) {
    const until = Date.parse(pane.until);
    const slides = this.#until === null ? 1 : Math.floor((until - this.#until) / this.#slide_ms);
    this.#until = until;
    return pane.missed > 0 ? pane : { ...pane, missed: Math.max(0, slides - 1) };
  }
}
