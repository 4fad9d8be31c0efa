// Requests to the server, and the token that they show.
//
// A call waits `timeout_s` at most, all tries together. What is made again when the connection fails: a call
// that changes nothing when it had landed. Another one is `Unavailable` and says that it may have landed. A
// server that is asked too much (429) has done nothing and says when to come back: every call waits for that.
//
// A node of a cluster that does not lead says so, and nothing was done there: the one that leads is asked. It
// says it by a redirect, which is not followed as it is: a browser would leave the token behind.

import { Closed, InvalidRequest, Unavailable, errorOf } from "./errors.js";
import { Places } from "./places.js";

export const now = () => performance.now() / 1000;
export const sleep = (seconds) => new Promise((resolve) => { setTimeout(resolve, seconds * 1000); });

/**
 * JSON text; what has none would be changed silently by JSON.stringify. A date is the text that the
 * Python client writes, with microseconds: texts order as the times do.
 */
export function encode(value) {
  return JSON.stringify(value, function plain(key, one) {
    if (this[key] instanceof Date && typeof one === "string") return one.replace(/Z$/, "000Z");
    if (one instanceof Map || one instanceof Set) {
      throw new InvalidRequest(`a ${one.constructor.name} is not JSON: give an object or a list. name=${key}`);
    }
    if (typeof one === "bigint" || (typeof one === "number" && !Number.isFinite(one))) {
      throw new InvalidRequest(`a number that JSON does not have. ${key}=${one}`);
    }
    return one;
  });
}

/**
 * Refuse undefined in a condition or a pipeline: JSON has none, and would leave the name out. `{ owner: undefined }`
 * would be met by every document.
 */
export function allDefined(value, place) {
  if (value === undefined) throw new InvalidRequest(`${place} is undefined: give a value, or leave it out`);
  if (typeof value !== "object" || value === null || typeof value.toJSON === "function") return;
  for (const [name, one] of Object.entries(value)) {
    allDefined(one, Array.isArray(value) ? `${place}[${name}]` : `${place}.${name}`);
  }
}

export function path(...names) {
  for (const name of names) {
    if (typeof name !== "string" || name === "" || name === "." || name === "..") {
      throw new InvalidRequest(`a name must be text that a path can hold. name=${JSON.stringify(name)}`);
    }
  }
  return `/v1/${names.map(encodeURIComponent).join("/")}`;
}

const LEAST_S = 0.05; // between two questions to nodes of which none leads
const HEALTH_S = 5; // for a node to say how it is
const AGAIN = ["OutcomeUnknown", "Closed"]; // kinds of a node that leads no more

const textOf = (value) => (value instanceof Date ? value.toISOString() : typeof value === "string" ? value : encode(value));

export class Http {
  closed = false;
  #given;
  #token;
  #asking = null;
  #reached = null; // where the last answer came from

  constructor(url, token, timeout_s, WebSocket) {
    this.places = new Places(url);
    if (!(timeout_s > 0)) throw new InvalidRequest(`timeout_s must be positive. timeout_s=${timeout_s}`);
    Object.assign(this, { timeout_s, WebSocket });
    this.#given = token;
    this.#token = typeof token === "function" ? undefined : token ?? "";
  }

  /** The server that is asked now. */
  get url() { return this.places.here; }

  /**
   * The document that the server answers with. `again`: it may be made twice, so it is when the connection
   * fails before the answer. `once`: a server that cannot be reached is not tried again. `longer_s`: beside
   * `timeout_s`.
   */
  async request(method, route, { query, body, again = method !== "POST", once = false, longer_s = 0 } = {}) {
    const asked = new URLSearchParams();
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value !== undefined && value !== null) asked.set(name, textOf(value));
    }
    const target = `${asked}` ? `${route}?${asked}` : route;
    const text = body === undefined ? undefined : encode(body);
    const limit = now() + this.timeout_s + longer_s;
    let heard = false;
    let left = this.places.size; // that were not asked yet
    let redirect = "manual";
    for (const pause of this.places.pauses()) {
      this.checkOpen();
      const place = this.places.here;
      const token = await this.token();
      let answer;
      let sent = false;
      try {
        // A browser does not tell a server that is not there from a broken connection: so ask first.
        if (!again && this.places.size > 1 && this.#reached !== place) await this.#health(place, limit);
        sent = true;
        answer = await this.#send(method, place + target, text, token, limit, redirect);
        this.#reached = place;
      } catch (cause) {
        this.#reached = null;
        this.places.leave(place);
        left -= 1;
        sent &&= cause.cause?.code !== "ECONNREFUSED";
        heard ||= sent;
        if (sent && !again) {
          throw new Unavailable(`the connection broke before the answer: the call may have landed or not. url=${place}`, { cause });
        }
        if ((once && left <= 0) || now() + pause >= limit) throw new Unavailable(`the server cannot be reached. url=${place}`, { cause });
        await sleep(pause);
        continue;
      }
      if (answer.redirected) {
        const leader = await this.#leader(place, limit);
        if (leader === place) redirect = "follow"; // by somebody else, such as a proxy
        else if (leader) this.places.elsewhere(place, leader);
        await sleep(Math.min(pause, LEAST_S));
        continue;
      }
      if (answer.status < 300) {
        if (answer.document !== undefined) return answer.document;
        throw new Unavailable(`this is not the answer of a Tideline server. url=${place}`);
      }
      if (heard && method === "DELETE" && answer.status === 404) return null; // the try before has done it
      const said = answer.document?.error;
      const error = errorOf(said?.kind ? said : { message: `the server answered ${answer.status}` }, answer.status);
      if (answer.status === 401 && (await this.newToken(token, error))) continue;
      const rest = Math.max(pause, LEAST_S);
      const elsewhere = error.kind === "NotLeading" || (AGAIN.includes(error.kind) && again && this.places.size > 1);
      if (elsewhere && now() + rest < limit) {
        heard ||= error.kind !== "NotLeading";
        this.places.elsewhere(place);
        await sleep(rest);
        continue;
      }
      if (answer.status !== 429 || !error.retry_after_s || now() + error.retry_after_s >= limit) throw error;
      await sleep(error.retry_after_s); // nothing was done
    }
  }

  /** Who leads, as a node says that redirects; the node itself where it is none. */
  async #leader(place, limit) {
    try {
      const said = await this.#health(place, limit);
      return said.role === "follower" ? said.leader : said.role === "leader" ? null : place;
    } catch {
      return place;
    }
  }

  async #health(place, limit) {
    const most = Math.min(limit, now() + HEALTH_S);
    return (await this.#send("GET", `${place}/healthz`, undefined, "", most)).document;
  }

  async #send(method, url, body, token, limit, redirect) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (token) headers.Authorization = `Bearer ${token}`;
    const stop = new AbortController();
    let timer = setTimeout(() => stop.abort(), Math.max(limit - now(), 0.001) * 1000);
    try {
      const response = await fetch(url, { method, headers, body, redirect, cache: "no-store", signal: stop.signal });
      // A browser tells nothing more of it; Node does.
      if (response.type === "opaqueredirect" || (response.status > 300 && response.status < 400)) return { redirected: true };
      clearTimeout(timer); // it has begun: the rest may take as long again
      timer = setTimeout(() => stop.abort(), this.timeout_s * 1000);
      const text = await response.text();
      return { status: response.status, document: parsed(text) };
    } finally {
      clearTimeout(timer);
    }
  }

  /** The token to show; the function is asked for the first one. */
  async token() {
    if (this.#token === undefined) {
      this.#asking ??= Promise.resolve(this.#given()).finally(() => { this.#asking = null; });
      this.#token = (await this.#asking) ?? "";
    }
    return this.#token;
  }

  /** Whether there is another token than the one refused. Calls refused at once share one question. */
  async newToken(used, error) {
    if (used !== this.#token) return true;
    if (typeof this.#given !== "function") return false;
    this.#asking ??= Promise.resolve(this.#given(error)).finally(() => { this.#asking = null; });
    const token = await this.#asking;
    if (token && token !== used) this.#token = token;
    return used !== this.#token;
  }

  checkOpen() {
    if (this.closed) throw new Closed(`the connection to the server was closed. url=${this.url}`);
  }
}

/** A document; null for none, undefined for what is not JSON. */
function parsed(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return undefined;
  }
}
