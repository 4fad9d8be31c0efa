// The view "Live tables": two live queries on one collection, their figures, and a network that can be cut.
//
//   Query 1, Query 2  --changes-->  one picture a frame  --shown-->  figures, once a second
//
// It has a connection of its own, so that cutting it cuts nothing else. While another view is in front it is
// let go of, and taken up again after the last version: what happened meanwhile is told then.
//
// Nothing is made up: writes a second are versions of the collection, standing queries what the server counts,
// bytes what came through the WebSocket, and the time from write to shown begins at the time that the writer put
// into the field `at` (milliseconds since 1970), by the server's clock.

import { connect } from "../tideline.js";
import { askAgain, token } from "./access.js";
import { Chart, bytes, short } from "./charts.js";
import { byId, element, setText } from "./dom.js";
import { Query } from "./query.js";

const PATIENCE_S = 20;
const AGAIN_MS = 2000;
const KEPT_MS = 10_000; // times from write to shown
const CLOCK_EVERY_S = 5;
const ORDERS = [
  { kind: "rows", sort: "total:-1", limit: "10" },
  { kind: "groups", where: '{"state": "open"}', by: "shop", sum: "total" },
];
const ANY = [{ kind: "rows", limit: "10" }, { kind: "rows", limit: "10", offset: "10" }];

let received = 0;
const encoder = new TextEncoder();

/** A WebSocket that counts what it is sent. */
class Counted extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => { received += encoder.encode(data).length; });
  }
}

export class Tables {
  #db;
  #onstate;
  #collection = null;
  #name = "";
  #shown = true;
  #cut = null; // {at, versions} while the network is cut
  #missed = 0;
  #resets = 0;
  #frame = 0;
  #waiting = []; // times at which what is about to be shown was written
  #times = []; // {when, ms}
  #clock = { offset: 0, trip: Infinity }; // server's time minus this page's, and how sure that is
  #seconds = 0;
  #last = { at: 0, version: null, received: 0 };

  /** `onstate(name)`: what its connection does. */
  constructor(onstate) {
    this.#db = connect(undefined, { token, timeout_s: PATIENCE_S, WebSocket: Counted });
    this.#onstate = onstate;
    this.#db.onstate = (state) => {
      onstate(this.#cut ? "cut" : state);
      this.#update();
    };
    const on = {
      changes: (query, changes, how) => this.#changes(changes, how),
      isCut: () => this.#cut !== null,
      draw: () => { this.#frame ||= requestAnimationFrame(() => this.#draw()); },
    };
    byId("query-1").after(twin(byId("query-1"), 2));
    this.queries = [new Query(1, on), new Query(2, on)];
    this.charts = Object.fromEntries(
      [["standing", "--blue"], ["writes", "--orange"], ["shown", "--blue"], ["bytes", "--orange"]].map(([name, colour]) =>
        [name, new Chart(byId(`chart-${name}`), byId(`top-${name}`), [{ colour }, ...(name === "shown" ? [{ colour: "--soft", dashed: true }] : [])])]));
    document.addEventListener("tideline:theme", () => Object.values(this.charts).forEach((chart) => chart.draw()));
    byId("cut").addEventListener("click", () => (this.#cut ? this.#mend() : this.#sever()));
    byId("tables-token").addEventListener("click", () => {
      askAgain();
      byId("tables-token").hidden = true;
      this.#begin();
    });
    byId("collection").addEventListener("change", () => this.#choose(byId("collection").value));
    setInterval(() => this.#second(), 1000);
    this.#begin();
  }

  show() {
    this.#shown = true;
    if (this.#cut) return;
    this.#db.reconnect();
    if (this.#collection) this.#db.sync().then(() => this.#update(), () => {});
  }

  hide() {
    this.#shown = false;
    this.#db.disconnect();
  }

  /** Find a collection; wait for one where there is none. */
  async #begin() {
    try {
      const names = (await this.#db.collections()).map(({ name }) => name);
      const wanted = new URLSearchParams(location.search).get("collection");
      const name = [wanted, "orders", names[0]].find((each) => names.includes(each));
      if (name !== undefined) {
        byId("collection").replaceChildren(...names.map((each) => element("option", each === name ? { selected: "" } : {}, each)));
        await this.#choose(name);
        return;
      }
      this.#onstate("idle");
      this.#say("This server has no collection yet. `tideline demo` brings one, `tideline collection create` makes one.");
    } catch (error) {
      this.#say(error.message);
      if (error.status === 401) {
        this.#onstate("idle");
        byId("tables-token").hidden = false;
        return;
      }
      this.#onstate("waiting");
    }
    setTimeout(() => this.#begin(), AGAIN_MS);
  }

  async #choose(name) {
    this.#name = name;
    this.#collection = this.#db.collection(name);
    this.#last = { at: 0, version: null, received };
    try {
      const { key } = await this.#collection.info();
      if (name !== this.#name) return;
      byId("cut").disabled = false;
      this.queries.forEach((query, i) => query.begin(this.#collection, key, (name === "orders" ? ORDERS : ANY)[i]));
    } catch (error) {
      this.#say(error.message);
    }
  }

  #say(text) { setText(byId("network-said"), text); }

  // ---- the network --------------------------------------------------------------------------------

  #sever() {
    this.#cut = { at: performance.now(), version: this.#version() };
    this.#missed = this.#resets = 0;
    this.#db.disconnect();
    this.#onstate("cut");
    this.#network();
    this.#say(`Cut at version ${this.#cut.version.toLocaleString("en-US")}. The tables stay as they were; the writes go on.`);
  }

  async #mend() {
    const { at, version } = this.#cut;
    const away = (performance.now() - at) / 1000;
    this.#cut = null;
    this.#network();
    this.#db.reconnect();
    this.#say("Catching up…");
    try {
      await this.#db.sync();
    } catch (error) {
      this.#say(error.message);
      return;
    }
    this.#update();
    const number = (value) => value.toLocaleString("en-US");
    const how = this.#resets > 0
      ? "the server had not kept what was missed: the difference was told"
      : `${number(this.#missed)} missed change${this.#missed === 1 ? "" : "s"} came in order, no gap, nothing twice`;
    this.#say(`Back after ${away.toFixed(1)} s, from version ${number(version)} to ${number(this.#version())}: ${how}.`);
  }

  #network() {
    const cut = this.#cut !== null;
    byId("cut").setAttribute("aria-pressed", String(cut));
    setText(byId("cut"), cut ? "Connect again" : "Cut the network");
    this.#update();
  }

  #update() { for (const query of this.queries) query.update(); }

  #version() { return Math.max(0, ...this.queries.map(({ live }) => live?.version ?? 0)); }

  // ---- what comes, and the picture ----------------------------------------------------------------

  #changes(changes, how) {
    if (how === "missed") this.#missed += changes.length;
    if (how === "reset") this.#resets += 1;
    if (how !== "live" || document.hidden || this.#clock.trip === Infinity) return;
    for (const { kind, fields } of changes) { // what is added may have been written long ago, and moved up
      if (kind !== "add" && typeof fields.at === "number") this.#waiting.push(fields.at);
    }
  }

  /** One picture of all that came; what is in it is shown when the next one may begin. */
  #draw() {
    this.#frame = 0;
    for (const query of this.queries) query.draw();
    const written = this.#waiting.splice(0);
    if (written.length === 0) return;
    requestAnimationFrame(() => {
      if (document.hidden) return;
      const when = performance.now();
      const now = when + performance.timeOrigin + this.#clock.offset;
      for (const at of written) this.#times.push({ when, ms: Math.max(now - at, 0) });
    });
  }

  // ---- figures ------------------------------------------------------------------------------------

  async #second() {
    this.#update();
    if (!this.#shown || this.#cut || !this.#collection || document.hidden) return;
    if (this.#seconds++ % CLOCK_EVERY_S === 0 && this.#db.state === "open") this.#setClock().catch(() => {});
    const name = this.#name;
    let info;
    try {
      info = await this.#collection.info();
    } catch {
      return; // the lamp says that there is no connection
    }
    if (name === this.#name && !this.#cut) this.#figures(info);
  }

  #figures({ position, stats }) {
    const now = performance.now();
    const before = this.#last;
    this.#last = { at: now, version: position, received };
    const standing = stats?.standing_queries ?? null;
    setText(byId("standing"), short(standing));
    setText(byId("standing-here"), String(this.queries.filter(({ live }) => live && live.state !== "ended").length));
    setText(byId("total-writes"), short(position));
    setText(byId("total-bytes"), bytes(received));
    this.charts.standing.add(standing);
    if (before.version === null) return;
    const seconds = (now - before.at) / 1000;
    const rates = { writes: Math.max(position - before.version, 0) / seconds, bytes: (received - before.received) / seconds };
    for (const [what, rate] of Object.entries(rates)) {
      this.charts[what].add(rate);
      setText(byId(`rate-${what}`), short(rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate)));
    }
    this.#times = this.#times.filter(({ when }) => now - when < KEPT_MS);
    const sorted = this.#times.map(({ ms }) => ms).sort((a, b) => a - b);
    const share = (part) => sorted[Math.min(Math.floor(sorted.length * part), sorted.length - 1)] ?? null;
    this.charts.shown.add(share(0.99), share(0.5));
    setText(byId("shown-p99"), short(share(0.99)));
    setText(byId("shown-p50"), short(share(0.5)));
  }

  /** The server's time, by the quickest of the answers. */
  async #setClock() {
    const asked = performance.now();
    const told = Date.parse(await this.#db.sync());
    const trip = performance.now() - asked;
    if (trip < this.#clock.trip * 1.05) this.#clock = { offset: told - (performance.timeOrigin + asked + trip / 2), trip };
  }
}

/** The same section under another number: with ids, names and labels of its own. */
function twin(section, number) {
  const made = section.cloneNode(true);
  for (const node of [made, ...made.querySelectorAll("*")]) {
    for (const { name, value } of [...node.attributes]) node.setAttribute(name, value.replace(/([a-z][- ])1\b/g, `$1${number}`));
  }
  setText(made.querySelector("h2"), `Query ${number}`);
  return made;
}
