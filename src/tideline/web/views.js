// The views of the page, one at a time: tabs as the keyboard and screen readers know them.
//
// The address says which one (#tables, #windows, #store, #access; nothing is the map), so a view can be linked to and gone back from.
// A view is made when it is first shown, and told when it is shown and hidden: what is hidden costs nothing.

import { byId, setText } from "./dom.js";

const WORDS = { open: "Connected", connecting: "Connecting", waiting: "Reconnecting", idle: "Not connected", cut: "Cut" };

export class Views {
  #views = {}; // name -> {make(), made: {show(), hide()} | null}
  #states = {};
  #current = null;

  add(name, make) {
    this.#views[name] = { make, made: null };
    this.#states[name] = "connecting";
    this.#tab(name).addEventListener("click", () => this.#go(name));
    this.#tab(name).addEventListener("keydown", (event) => this.#key(event, name));
  }

  start() {
    addEventListener("popstate", () => this.#follow());
    this.#follow();
  }

  /** What the connection of a view does; the lamp shows that of the view in front. */
  connection(name, state) {
    this.#states[name] = state;
    if (name === this.#current) this.#lamp();
  }

  isShown(name) { return name === this.#current; }

  #tab(name) { return byId(`tab-${name}`); }

  #go(name) {
    if (name === this.#current) return;
    history.pushState(null, "", name === "map" ? location.pathname + location.search : `#${name}`);
    this.#follow();
  }

  #follow() {
    const named = location.hash.slice(1);
    const name = named in this.#views ? named : "map";
    if (name === this.#current) return;
    const before = this.#views[this.#current];
    this.#current = name;
    for (const each of Object.keys(this.#views)) {
      const chosen = each === name;
      byId(`view-${each}`).hidden = !chosen;
      this.#tab(each).setAttribute("aria-selected", String(chosen));
      this.#tab(each).tabIndex = chosen ? 0 : -1;
      for (const own of document.querySelectorAll(`[data-view="${each}"]`)) own.hidden = !chosen;
    }
    before?.made?.hide();
    const view = this.#views[name];
    if (view.made) view.made.show();
    else view.made = view.make();
    this.#lamp();
  }

  /** Arrows, Home and End go from tab to tab. */
  #key(event, name) {
    const names = Object.keys(this.#views);
    const at = names.indexOf(name);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = names.at(to % names.length);
    this.#tab(next).focus();
    this.#go(next);
  }

  #lamp() {
    byId("status").dataset.state = this.#states[this.#current];
    setText(byId("status-text"), WORDS[this.#states[this.#current]]);
  }
}
