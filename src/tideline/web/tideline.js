// Tideline from JavaScript, in browsers and Node: channels, collections and stream windows of a server.
//
//   import { connect } from "/tideline.js";                 // of the server itself; "tideline" from npm
//   const roads = connect().channel("roads");
//   const sub = await roads.subscribe("I-87", { user: "ann", since_s: -600, until_s: 3600 });
//   console.log(sub.past);                                   // what has happened
//   for await (const event of sub) console.log(event.body);  // what happens
//
// Names: a method is the verb of the wire in camelCase (`find_one` is `findOne`). What travels keeps the
// name it has there: options (`ttl_s`, `if_version`) and the fields of what comes back. Seconds count
// from the server's now; times come as ISO 8601 text and are given so or as a Date.
//
//   Database --> Http   one fetch a call, made again when that can do nothing twice
//            \-> Live --> Socket   one WebSocket with all that is followed: subscriptions, changes, live queries, panes
//
// When the WebSocket breaks it is opened again, with growing waits, and each stream goes on after the last
// thing it received: nothing is missed and nothing comes twice. docs/guide/javascript.md has every verb.

import { InvalidRequest } from "./tideline/errors.js";
import { Http, path } from "./tideline/http.js";
import { Live } from "./tideline/live.js";
import { Socket } from "./tideline/socket.js";
import { Channel, Collection } from "./tideline/verbs.js";
import { Panes, StreamWindow } from "./tideline/windows.js";

export {
  Closed, Conflict, Corruption, InvalidRequest, NotFound, TidelineError, Unauthorized, Unavailable,
} from "./tideline/errors.js";
export { LiveQuery } from "./tideline/queries.js";
export { Changes, Subscription } from "./tideline/streams.js";
export { Channel, Collection, Panes, StreamWindow };

/**
 * A server. Asks nothing yet. Without `url`: the server that this module came from, or else the page.
 * Several addresses, as an array or with commas between: the nodes of a cluster; the leader is found.
 * `token`: text, or a function that gives one: called at first, and with the error when one was refused.
 */
export function connect(url, { token, timeout_s = 30, WebSocket } = {}) {
  return new Database(new Http(url ?? home(), token, timeout_s, WebSocket ?? globalThis.WebSocket));
}

function home() {
  const from = /^(https?:.*)\/tideline\.js$/.exec(import.meta.url);
  const found = from?.[1] ?? globalThis.location?.origin;
  if (!found) throw new InvalidRequest("there is no page here: give the server's address, connect(url)");
  return found;
}

export class Database {
  #http;
  #live;

  constructor(http) {
    this.#http = http;
    this.#live = new Live(http, (state, pause_s) => this.onstate?.(state, pause_s));
    /** Called with "idle", "connecting", "open" or "waiting" (and for how long) when that changes. */
    this.onstate = null;
  }

  /** The server that is asked now. */
  get url() { return this.#http.url; }

  /** What the live connection is doing: "idle" until something is followed. */
  get state() { return this.#live.socket.state; }

  /** A channel. With settings it is made before its first use, if it is not there. */
  channel(name, settings) { return new Channel(this.#http, this.#live, name, settings); }

  /** A collection. With settings (`{ key: "id" }`) it is made before its first use, if it is not there. */
  collection(name, settings) { return new Collection(this.#http, this.#live, name, settings); }

  /** A stream window. With settings (`{ span_s: 300, key: "vid" }`) it is made before its first use, if it is not there. */
  window(name, settings) { return new StreamWindow(this.#http, this.#live, name, settings); }

  channels() { return this.#http.request("GET", "/v1/channels"); }

  collections() { return this.#http.request("GET", "/v1/collections"); }

  windows() { return this.#http.request("GET", "/v1/windows"); }

  async dropChannel(name) { await this.#http.request("DELETE", path("channels", name)); }

  async dropCollection(name) { await this.#http.request("DELETE", path("collections", name)); }

  async dropWindow(name) { await this.#http.request("DELETE", path("windows", name)); }

  /** Any other route: `db.request("GET", "/v1/channels/roads/times", { query: { parts: 4 } })`. */
  request(method, route, options) { return this.#http.request(method, route, options); }

  /** Another WebSocket of the server that comes back by itself, as the live connection does. */
  socket(route, on) { return new Socket(this.#http, route, on); }

  /** Resolves when all that is followed here has what was written before: to the server's time. */
  sync() { return this.#live.sync(); }

  /** Let go of the live connection. What is subscribed to stays so on the server. */
  disconnect() { this.#live.hold(); }

  /** Connect again, now: after `disconnect`, or instead of waiting for the next try. */
  reconnect() { this.#live.takeUp(); }

  /** End everything that is followed here, and the connection. What is stored stays stored. */
  close() {
    this.#http.closed = true;
    this.#live.close();
  }
}
