// Live queries: a question to a collection that stays answered.
//
//   const live = orders.watch({ shop: 7 }, { sort: { total: -1 }, limit: 10 });
//   live.subscribe(() => draw(live.result));
//   for await (const change of live) console.log(change.kind, change.key);
//
// The server sends the result, in pieces, and then changes, all of a tick in one message. After a broken
// connection it sends what was missed; or, when it has not kept that, the result of now, of which the user is
// told the difference. So is a loop that is more than QUEUE changes behind: memory is bounded, and no gap is silent.

import { Conflict, InvalidRequest, NotFound } from "./errors.js";
import { allDefined, now } from "./http.js";
import { Gap, Rows } from "./rows.js";
import { Followed, safely } from "./streams.js";

const QUEUE = 10_000; // changes that wait for a loop
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The result of a live query, kept up to date: of `collection.watch` and `collection.watchGroups`. */
export class LiveQuery extends Followed {
  #collection;
  #live;
  #query; // as it is asked for
  #groups;
  #keyOf;
  #rows = null; // until the first result is there
  #none = [];
  #pieces = [];
  #identity;
  #placed = false; // whether changes have places
  #limit = Infinity; // when it ends, by the clock here
  #gap = false; // something did not fit
  #behind = false; // what comes was missed
  #listeners = new Set();
  #loops = new Set();

  constructor(collection, live, verb, { where, sort, ...options }) {
    super();
    this.#collection = collection;
    this.#live = live;
    this.#groups = verb === "watch_groups";
    const order = isObject(sort) ? Object.entries(sort) : sort;
    this.#query = { do: verb, collection: collection.name, where: where ?? undefined, sort: order, ...options };
    /** The version of the collection that `result` is of; null before the first result. */
    this.version = null;
    /** When it ends unless it is prolonged: a time, or null. */
    this.until = null;
    /** Whether what was missed while there was no connection was told as a difference. */
    this.wasReset = false;
    /** Resolves to the first result. */
    this.ready = this.#begin();
    this.ready.catch((error) => this.end("refused", error));
  }

  async #begin() {
    const { where, first } = this.#query;
    allDefined(where ?? null, "where");
    if (first !== undefined) throw new InvalidRequest("a live query begins with its result here: leave out first");
    await this.#collection.make();
    const known = this.#groups ? this.#query.by : await this.#collection.keyField();
    this.#keyOf = Array.isArray(known) ? (row) => known.map((field) => row[field]) : (row) => row[known];
    await this.#live.follow(this);
    return this.result;
  }

  /** The rows now, in order. A new array after each tick; rows that did not change are the same objects. */
  get result() { return this.#rows?.result ?? this.#none; }

  /** `result`, as useSyncExternalStore asks for it. */
  getSnapshot = () => this.result;

  /**
   * Call a function after each tick with its changes and how they came: "first" (the result is there), "live",
   * "missed" (while there was no connection) or "reset". Returns a function that ends this.
   */
  subscribe = (listener) => {
    if (typeof listener !== "function") throw new InvalidRequest("subscribe needs a function");
    const one = (...given) => listener(...given); // the same function twice is two
    this.#listeners.add(one);
    return () => { this.#listeners.delete(one); };
  };

  /** Changes from now on. Leaving the loop leaves the query as it is. */
  [Symbol.asyncIterator]() {
    const loop = new Loop(this, () => this.#loops.delete(loop));
    this.#loops.add(loop);
    if (this.#rows) loop.begin(this.#rows);
    return loop;
  }

  /** Let it end so many seconds from now; null: not by itself. */
  async prolong({ ttl_s } = {}) {
    if (ttl_s === undefined) throw new InvalidRequest("prolong needs ttl_s: seconds from now, or null");
    await this.ready;
    await this.#live.ask(this, { do: "prolong", ttl_s });
    this.#lasts(ttl_s);
  }

  /** End it. `result` stays as it is. */
  async cancel() {
    await this.ready.catch(() => {});
    if (this.state === "away") this.#live.drop(this); // it ended on the server with its connection
    else await this.#live.finish(this, "cancel");
  }

  request() {
    const query = { ...this.#query };
    if (this.#rows && !this.#gap) Object.assign(query, { after: this.version, identity: this.#identity });
    if (this.#limit < Infinity) query.ttl_s = Math.max(this.#limit - now(), 0.001); // what is left of it
    else if (this.#rows) delete query.ttl_s; // it was told to stay
    return query;
  }

  begin(tag) {
    super.begin(tag);
    this.#pieces = [];
  }

  /** Whether all of the beginning is there, or what was asked was answered. */
  hear({ watching, prolonged, result, changes, version, more }) {
    if (watching) {
      this.until = watching.until ?? null;
      this.#identity = watching.identity;
      this.#placed = Boolean(watching.placed);
      if (!this.#rows) this.#lasts(this.#query.ttl_s);
      this.#pieces = [];
      if (watching.resumed) this.wasReset = false;
      this.#behind = watching.resumed;
      return watching.resumed;
    }
    if (prolonged) {
      this.until = prolonged.until ?? null;
      return true;
    }
    if (changes) {
      this.#apply(changes, version);
      return false;
    }
    if (!result) return false;
    for (const row of result) this.#pieces.push(row);
    if (more) return false;
    this.#replace(this.#pieces, version);
    this.#pieces = [];
    return this.state !== "open"; // what is asked meanwhile has an answer of its own
  }

  #apply(changes, version) {
    if (this.#gap) return;
    const told = [];
    try {
      for (const one of changes) told.push(this.#rows.apply(one));
    } catch (error) {
      if (!(error instanceof Gap)) throw error;
      this.#gap = true;
    }
    this.#tell(told, this.#gap ? this.version : version, this.#behind ? "missed" : "live");
    if (this.#gap) this.#live.socket.again(); // the result of now mends it
  }

  /** What was missed has come. */
  caughtUp() { this.#behind = false; }

  /** Everything of a collection up to a version was told. */
  reached(name, version) {
    if (name === this.#collection.name && this.state === "open" && !this.#gap) this.version = Math.max(this.version, version);
  }

  #replace(rows, version) {
    this.#behind = this.#gap = false;
    if (this.#rows) {
      this.wasReset = true;
      this.#tell(this.#rows.replace(rows, version), version, "reset");
      return;
    }
    this.#rows = new Rows(this.#keyOf, this.#placed, rows, !this.#groups);
    for (const loop of this.#loops) loop.begin(this.#rows);
    this.#tell([], version, "first");
  }

  #tell(changes, version, how) {
    this.version = version;
    for (const loop of this.#loops) loop.add(changes);
    for (const listener of [...this.#listeners]) safely(listener, changes, how);
  }

  #lasts(ttl_s) { this.#limit = (ttl_s ?? null) === null ? Infinity : now() + ttl_s; }

  /** The collection was dropped, and maybe made again, while there was no connection. */
  refuse(error) {
    if (error instanceof NotFound || error instanceof Conflict) this.end("dropped");
    else super.refuse(error);
  }

  closed() { for (const loop of this.#loops) loop.wake(); }
}

/** One `for await` over the changes of a live query. */
class Loop {
  #query;
  #left;
  #rows = null; // as far as the loop has come
  #queue = [];
  #behind = false;
  #waiting = [];
  #done = false;

  constructor(query, left) {
    this.#query = query;
    this.#left = left;
  }

  begin(rows) { this.#rows = rows.copy(); }

  add(changes) {
    if (!this.#behind) for (const change of changes) this.#queue.push(change);
    if (this.#queue.length > QUEUE) {
      this.#behind = true;
      this.#queue = [];
    }
    this.wake();
  }

  wake() { for (const resolve of this.#waiting.splice(0)) resolve(); }

  async next() {
    for (;;) {
      if (this.#done) return { value: undefined, done: true };
      if (this.#behind) {
        this.#behind = false;
        this.#queue = this.#rows.copy().replace(this.#query.result, this.#query.version);
      }
      if (this.#queue.length > 0) {
        const value = this.#queue.shift();
        this.#rows.adopt(value);
        return { value, done: false };
      }
      if (this.#query.state === "ended") {
        await this.return();
        if (this.#query.error) throw this.#query.error;
        continue;
      }
      await new Promise((resolve) => { this.#waiting.push(resolve); });
    }
  }

  async return() {
    this.#done = true;
    this.#left();
    this.wake();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() { return this; }
}
