// Channels and collections: each verb is one request, and what is followed goes to the live connection.

import { InvalidRequest, NotFound } from "./errors.js";
import { allDefined, path } from "./http.js";
import { LiveQuery } from "./queries.js";
import { Changes, Subscription } from "./streams.js";

const nonce = [...globalThis.crypto.getRandomValues(new Uint32Array(2))].map((part) => part.toString(36)).join("");
let made = 0;
const newId = () => `${nonce}-${(made++).toString(36)}`;
/** With an id, so that it can be sent again without being stored twice. */
const named = (event) => ({ ...event, id: event.id ?? newId() });

/** What channels, collections and stream windows share: a name, settings, and being made when they are first used. */
export class Named {
  #http;
  #kind;
  #settings;
  #making = null;

  constructor(http, kind, name, settings) {
    path(name);
    this.#http = http;
    this.#kind = kind;
    this.#settings = settings;
    this.name = name;
  }

  /** What it is, as the server describes it. */
  async info() {
    await this.make();
    return this.#http.request("GET", path(this.#kind, this.name));
  }

  async stats() { return (await this.info()).stats; }

  async call(method, names, options) {
    await this.make();
    return this.#http.request(method, path(this.#kind, this.name, ...names), options);
  }

  get settings() { return this.#settings; }

  /** With settings: see that it is there, and as they say. Somebody who may only use it may ask that, too. */
  make() {
    if (!this.#settings) return Promise.resolve();
    this.#making ??= this.#http.request("PUT", path(this.#kind, this.name), { body: this.#settings }).catch((error) => {
      this.#making = null; // the next call tries again
      throw error;
    });
    return this.#making;
  }
}

/** Events and subscriptions at places. */
export class Channel extends Named {
  #live;

  constructor(http, live, name, settings) {
    super(http, "channels", name, settings);
    this.#live = live;
  }

  /** Store an event: `{event, subscriptions, related, duplicate}`, and whoever asked is told. */
  async publish(place, body, options = {}) {
    if (options.replace && options.id === undefined) throw new InvalidRequest("replace needs the id of what it replaces");
    await this.make();
    const event = named({ ...options, place, body });
    return (await this.#live.publish({ channel: this.name, ...event }))
      ?? this.call("POST", ["events"], { body: event, again: true });
  }

  /** Many events, `{place, body, ...options of publish}`; a result for each: `{event}` or `{error}`. */
  async publishMany(events) {
    return (await this.call("POST", ["events"], { body: { events: events.map(named) }, again: true })).results;
  }

  /** The valid events of a window, newest first. */
  async find(place, options = {}) {
    allDefined(options.where ?? null, "where");
    return (await this.call("GET", ["events"], { query: { ...options, place } })).events;
  }

  /** Store a subscription and follow it. */
  async subscribe(place, options = {}) {
    allDefined(options.where ?? null, "where");
    await this.make();
    const sub = new Subscription(this, this.#live, options.id ?? newId(), { retractions: options.retractions });
    await this.#live.subscribe(sub, { do: "subscribe", channel: this.name, ...options, place, id: sub.id });
    return sub;
  }

  /** A stored subscription, with what it was answered after a token, or all of that. */
  async resume(id, after, { retractions } = {}) {
    await this.make();
    const sub = new Subscription(this, this.#live, id, { after, retractions });
    await this.#live.follow(sub);
    return sub;
  }

  /** The event with this id, if it is still valid; null otherwise. */
  async get(id) {
    try {
      return await this.call("GET", ["events", id]);
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      await this.info(); // throws the same when it is the channel that is not there
      return null;
    }
  }

  /** End an event before its time; `NotFound` if no valid one has this id. */
  async retract(id) { await this.call("DELETE", ["events", id]); }

  async cancel(id) { await this.call("DELETE", ["subscriptions", id]); }

  /** Have a subscription watch another place; who follows it goes on. */
  move(id, place) { return this.call("PATCH", ["subscriptions", id], { body: { place } }); }

  /** Let a subscription's window end at another time. */
  prolong(id, window) { return this.call("PATCH", ["subscriptions", id], { body: window }); }

  subscription(id) { return this.call("GET", ["subscriptions", id]); }

  /** The live subscriptions, in order of arrival; a long list is fetched in parts. */
  async subscriptions({ user, limit = Infinity, after } = {}) {
    const found = new Map();
    do {
      const query = { user, limit: Math.min(limit - found.size, 10_000), after };
      const part = await this.call("GET", ["subscriptions"], { query });
      for (const one of part.subscriptions) {
        found.delete(one.id); // one that was prolonged meanwhile comes again
        found.set(one.id, one);
      }
      after = part.next;
    } while (after && found.size < limit);
    return [...found.values()];
  }
}

// Verbs that only read. What writes is not made again by itself: somebody else may have written in between.
const READS = new Set([
  "check_many", "get", "get_many", "versioned", "find", "find_one", "count", "distinct", "aggregate", "aggregate_grid",
  "nearest", "lookup", "range_lookup", "explain", "explain_watch", "advise",
]);
const KEYS = 10_000; // in one request

/** Documents by their key. */
export class Collection extends Named {
  #live;
  #key = null;

  constructor(http, live, name, settings) {
    super(http, "collections", name, settings);
    this.#live = live;
  }

  put(document, options) { return this.#verb("put", { document, ...options }); }

  putMany(documents, options) { return this.#verb("put_many", { documents, ...options }); }

  insert(document, options) { return this.#verb("insert", { document, ...options }); }

  /** Which documents `putMany` would reject, and why, by their row. */
  checkMany(documents) { return this.#verb("check_many", { documents }); }

  insertMany(documents, options) { return this.#verb("insert_many", { documents, ...options }); }

  get(key) { return this.#verb("get", { key }); }

  /** In the order of the keys, null where there is none. */
  async getMany(keys) {
    const found = [];
    for (let first = 0; first < keys.length; first += KEYS) {
      found.push(...(await this.#verb("get_many", { keys: keys.slice(first, first + KEYS) })));
    }
    return found;
  }

  versioned(key) { return this.#verb("versioned", { key }); }

  update(key, change, options) { return this.#verb("update", { key, change, ...options }); }

  updateMany(where, change) { return this.#verb("update_many", { where, change }); }

  replace(key, document, options) { return this.#verb("replace", { key, document, ...options }); }

  delete(key, options) { return this.#verb("delete", { key, ...options }); }

  deleteMany(keys) { return this.#verb("delete_many", { keys }); }

  deleteWhere(where) { return this.#verb("delete_where", { where }); }

  /** All that meets a condition, as an array. */
  async find(where, options) {
    const found = [];
    for await (const document of this.findIter(where, options)) found.push(document);
    return found;
  }

  /** The same one at a time, fetched in pages as it is read. */
  async *findIter(where, options) {
    let cursor;
    do {
      const page = await this.#answer("find", { where, ...options, cursor });
      yield* page.result;
      cursor = page.next;
    } while (cursor);
  }

  findOne(where, options) { return this.#verb("find_one", { where, ...options }); }

  count(where) { return this.#verb("count", { where }); }

  distinct(field, where) { return this.#verb("distinct", { field, where }); }

  aggregate(pipeline) { return this.#verb("aggregate", { pipeline }); }

  /** The documents nearest to [lon, lat]: { document, metres } each. */
  nearest(point, options) { return this.#verb("nearest", { point, ...options }); }

  /** How many documents are in each cell of a grid over [west, south, east, north]. */
  aggregateGrid(box, options) { return this.#verb("aggregate_grid", { box, ...options }); }

  lookup(field, value, options) { return this.#verb("lookup", { field, value, ...options }); }

  /** From `low` to `high`, both included; null is open. */
  rangeLookup(field, low, high, options) { return this.#verb("range_lookup", { field, low, high, ...options }); }

  explain(where, options) { return this.#verb("explain", { where, ...options }); }

  advise(options = {}) { return this.#verb("advise", options); }

  /** Resolves when it is built; `wait_s` is how long that may take. */
  async createIndex(field, options = {}) {
    if (typeof options !== "object") throw new InvalidRequest(`options must be an object, like { kind: "words" }. options=${options}`);
    const { wait_s = 600, ...rest } = options;
    return this.#verb("create_index", { field, ...rest, wait_s }, wait_s);
  }

  dropIndex(field) { return this.#verb("drop_index", { field }); }

  /** What meets a condition, kept up to date: `orders.watch({ shop: 7 }, { sort: { total: -1 }, limit: 10 })`. */
  watch(where, options) { return new LiveQuery(this, this.#live, "watch", { ...options, where }); }

  /** Counts and sums of groups, kept up to date: `orders.watchGroups({}, { by: "shop", count: true })`. */
  watchGroups(where, options) { return new LiveQuery(this, this.#live, "watch_groups", { ...options, where }); }

  /** How a live query would be kept up to date, and what that costs. */
  explainWatch(where, options) { return this.#verb("explain_watch", { where, ...options }); }

  /** The field that documents are known by. */
  keyField() {
    this.#key ??= this.settings?.key ? Promise.resolve(this.settings.key) : this.info().then(({ key }) => key);
    this.#key.catch(() => { this.#key = null; }); // the next one asks again
    return this.#key;
  }

  /** Every write from now on, or after a seq: `for await (const change of cars.changes())`. */
  changes(options = {}) { return new Changes(this, this.#live, options); }

  async #verb(verb, body, longer_s) { return (await this.#answer(verb, body, longer_s)).result; }

  #answer(verb, body, longer_s) {
    for (const name of ["where", "pipeline"]) allDefined(body[name] ?? null, name);
    allDefined(body.change?.$pull ?? null, "change.$pull"); // conditions, too
    return this.call("POST", [verb], { body, again: READS.has(verb), longer_s });
  }
}
