// Where the servers of a client are: one, or the nodes of a cluster.
//
//   here          the one that is asked now
//   leave(url)    it does not answer: ask the next one
//   goTo(url)     a node said that another one leads: ask that one
//
// A client that was told one address learns of others when a node says who leads.

import { InvalidRequest } from "./errors.js";

export class Places {
  #urls;
  #at = 0;

  /** An address, several with commas between, or an array of them. */
  constructor(given) {
    const urls = Array.isArray(given) ? given : String(given).split(",");
    if (urls.length === 0) throw new InvalidRequest("connect needs the address of a server: the array is empty");
    this.#urls = urls.map(address);
  }

  get size() { return this.#urls.length; }

  get here() { return this.#urls[this.#at]; }

  /** Ask the next one, unless somebody moved on already. */
  leave(url) {
    if (this.here === url) this.#at = (this.#at + 1) % this.#urls.length;
  }

  goTo(url) {
    const found = address(url);
    const at = this.#urls.indexOf(found);
    this.#at = at >= 0 ? at : this.#urls.push(found) - 1;
  }
}

function address(given) {
  let url;
  try {
    url = new URL(String(given).trim()).href.replace(/\/$/, "");
  } catch { /* said below */ }
  if (!/^https?:/.test(url ?? "")) throw new InvalidRequest(`the address must be http://HOST:PORT. url=${given}`);
  return url;
}
