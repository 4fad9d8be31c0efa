// Calls to the server this page came from, and the token they carry.
//
// The token is kept for this tab alone (sessionStorage) and asked for when the server says 401; who
// says "not now" is not asked again until they want to.

/** The server answered, with an error. `kind` and the message are its own. */
export class Refused extends Error {
  constructor(status, kind, message) {
    super(message);
    Object.assign(this, { status, kind });
  }
}

/** No answer: the server or the network is gone. */
export class Unreachable extends Error {}

const KEPT = "tideline.token";

/** A path of the server as the page sees it: a proxy may have put a prefix before both. */
const here = (path) => new URL(path.replace(/^\//, ""), document.baseURI);

export class Api {
  /** askToken(message): shows a form, resolves to a token, or to null when nobody gave one. */
  constructor(askToken) {
    this.askToken = askToken;
    this.asking = null;
    this.declined = false;
    this.token = sessionStorage.getItem(KEPT) ?? "";
  }

  get(path, query = {}) {
    const text = new URLSearchParams(query).toString();
    return this.call("GET", text ? `${path}?${text}` : path);
  }

  /** The answer's document; throws Refused or Unreachable. Asks for a token on 401 and tries again. */
  async call(method, path, body) {
    for (;;) {
      const used = this.token;
      const response = await this.#send(method, path, body);
      if (response.status === 401 && (await this.#newToken(used, await message(response)))) continue;
      if (!response.ok) {
        const { kind, text } = await message(response);
        throw new Refused(response.status, kind, text);
      }
      return response.status === 204 ? null : response.json();
    }
  }

  socket(path, query = {}) {
    const url = here(path);
    url.protocol = url.protocol.replace("http", "ws");
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return new WebSocket(url);
  }

  async #send(method, path, body) {
    const headers = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    try {
      return await fetch(here(path), {
        method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
      });
    } catch {
      throw new Unreachable("The server does not answer.");
    }
  }

  /** True when there is another token to try. Several calls refused at once share one question. */
  async #newToken(used, { text }) {
    if (used !== this.token) return true;
    if (this.declined) return false;
    this.asking ??= this.askToken(used ? text : "").finally(() => { this.asking = null; });
    const token = await this.asking;
    this.declined = token === null;
    if (this.declined) return false;
    this.token = token;
    sessionStorage.setItem(KEPT, token);
    return true;
  }
}

async function message(response) {
  try {
    const { error } = await response.clone().json();
    return { kind: error.kind, text: error.message };
  } catch {
    return { kind: "Unavailable", text: `The server answered ${response.status}.` };
  }
}

/** Seconds since 1970 of a time as the server writes it; Infinity for none. */
export function seconds(time) {
  return time === null || time === undefined ? Infinity : Date.parse(time) / 1000;
}
