// Where the servers of a client are: one, or the nodes of a cluster.
//
//   here          the one that is asked now
//   leave(url)    it does not answer: ask the next one
//   elsewhere(url, leader)    it does not lead: ask the one that does, or the next one
//   pauses()      how long to wait between tries, in seconds
//
// A client that was told one address learns of others when a node says who leads. While nodes answer and none
// leads, one soon will: pauses stay short then.

import { InvalidRequest } from "./errors.js";

const NONE_LEADS_S = 0.1; // the longest pause while nodes answer and none leads
const ELECTED_S = 10; // so long after the last that said so

export class Places {
  #urls;
  #at = 0;
  #noneLeadsUntil = -Infinity;

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

  elsewhere(url, leader) {
    this.#noneLeadsUntil = performance.now() / 1000 + ELECTED_S;
    if (leader) this.#goTo(leader);
    else this.leave(url);
  }

  /** Not at all, then longer, never all at one time; shorter where another server may answer. */
  * pauses() {
    yield 0;
    const longest = this.size > 1 ? 2 : 8;
    for (let span = 0.05; ; span = Math.min(span * 2, longest)) {
      const most = performance.now() / 1000 < this.#noneLeadsUntil ? NONE_LEADS_S : longest;
      yield Math.min(span, most) * (0.5 + Math.random() / 2);
    }
  }

  #goTo(url) {
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
