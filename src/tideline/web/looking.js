// What the views "Windows", "Store" and "Access" share: they ask the server again and again while they are in front,
// one request after the other, and tell in a notice why they show nothing.
//
// In the document a view named "store" has a notice #store-said, with its text #store-text and a button #store-token.

import { connect } from "../tideline.js";
import { askAgain, token } from "./access.js";
import { byId, element } from "./dom.js";

const PATIENCE_S = 20;

/** A view has `async ask(stands)`: ask the server and show what it said, if `stands()`. After true it is not called again. */
export class Looking {
  db = connect(undefined, { token, timeout_s: PATIENCE_S });
  onstate;
  #name;
  #every;
  #shown = true;
  #timer = 0;
  #asking = 0; // a look that was overtaken says nothing

  constructor(name, onstate, everyMs) {
    Object.assign(this, { onstate });
    this.#name = name;
    this.#every = everyMs;
    byId(`${name}-token`).addEventListener("click", () => this.enter());
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** The reader wants to enter a token. */
  enter() {
    askAgain();
    byId(`${this.#name}-token`).hidden = true;
    this.look();
  }

  get isShown() { return this.#shown; }

  show() {
    this.#shown = true;
    this.look();
  }

  hide() {
    this.#shown = false;
    this.#asking += 1;
    clearTimeout(this.#timer);
  }

  /** Look now, and then as often as a view does. */
  async look() {
    clearTimeout(this.#timer);
    if (!this.#shown || document.hidden) return;
    const asked = ++this.#asking;
    const stands = () => asked === this.#asking;
    const ended = await this.ask(stands).catch((error) => stands() && this.failed(error));
    if (!ended && stands()) this.#timer = setTimeout(() => this.look(), this.#every);
  }

  /** Say why; true when only a token mends it. */
  failed(error) {
    this.say(error.message);
    const refused = error.status === 401;
    this.onstate(refused ? "idle" : "waiting");
    byId(`${this.#name}-token`).hidden = !refused;
    return refused;
  }

  /** Show a notice, or with "" none. What stands between backticks is a command. */
  say(text) {
    byId(`${this.#name}-said`).hidden = text === "";
    const node = byId(`${this.#name}-text`);
    const parts = text.split("`");
    if (node.textContent === parts.join("")) return; // a screen reader hears changes, not repeats
    node.replaceChildren(...parts.map((part, at) => (at % 2 ? command(part) : part)));
  }
}

/** A command, which breaks between its words only. */
function command(text) {
  return element("code", {}, ...text.split(" ").flatMap((word, at) => [...(at ? [" "] : []), element("span", {}, word)]));
}
