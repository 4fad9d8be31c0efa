// The first five seconds of a server that has something to show (`tideline demo`): the map goes to a city, a
// question is asked there, and a card says what is seen: who asked, what happens, who is told.
//
// The server says where (`start` of /v1/watch). Once a tab: whoever closes the card or takes the map into their own
// hands is left alone. The question is a subscription like any other, and a page that is loaded again takes it up again.

import { byId, setText } from "./dom.js";
import { summary } from "./places.js";

const KEPT = "tideline.tour"; // the id of the question; "closed" when the card was closed
const BACK_S = 60;
const AHEAD_S = 600;
const TELL_EVERY_MS = 1500; // long enough to read

export class Tour {
  #begun = false;
  #where = null; // {at, radius_m}
  #newest = null; // {id, body}
  #timer = 0;

  constructor(stage, live, user) {
    Object.assign(this, { stage, live, user });
    byId("tour-close").addEventListener("click", () => this.#close());
    byId("tour-whole").addEventListener("click", () => {
      stage.stay();
      stage.view.fit();
      this.#close();
    });
    for (const kind of ["pointerdown", "wheel", "keydown"]) byId("map").addEventListener(kind, () => stage.stay(), { passive: true });
    byId("zoom-fit").addEventListener("click", () => stage.stay());
  }

  /** The server said where to begin: {at: [lon, lat], radius_m, across_m, name}. */
  begin(start) {
    if (this.#begun) return;
    this.#begun = true;
    const kept = sessionStorage.getItem(KEPT);
    if (kept === "closed") return;
    const [lon, lat] = start.at;
    this.#where = start;
    setText(byId("tour-title"), `Live in ${start.name}`);
    setText(byId("tour-asked"), `You asked: what happened within ${start.radius_m / 1000} km in the last minute, and what happens from now on.`);
    byId("tour").hidden = false;
    this.stage.flyTo(lon, lat, start.across_m);
    this.#ask(start, kept);
    this.#timer = setInterval(() => this.#tell(), TELL_EVERY_MS);
  }

  /** Something happened. */
  happened(event, place) {
    if (!this.#where) return;
    const [lon, lat] = this.#where.at;
    const far = Math.hypot((place.lon - lon) * Math.cos((lat * Math.PI) / 180), place.lat - lat) * 111_195;
    if (far <= this.#where.radius_m) this.#newest = event;
  }

  #tell() {
    if (!this.#newest) return;
    const { id, body } = this.#newest;
    setText(byId("tour-event"), `Happened: ${summary(body)}.`);
    const { count } = this.stage.told.of(id);
    setText(byId("tour-told"), count ? `${count} who asked around there ${count === 1 ? "was" : "were"} told at once.` : "Nobody had asked around there.");
  }

  async #ask({ at: [lon, lat], radius_m: metres }, kept) {
    try {
      if (kept && await this.live.resume(kept, "you").then(() => true, () => false)) return;
      const options = { user: this.user, since_s: -BACK_S, until_s: AHEAD_S };
      const id = await this.live.subscribe({ circle: [lon, lat, metres] }, options, "you");
      sessionStorage.setItem(KEPT, id);
    } catch { // a token that may not subscribe: the map shows what others ask
      setText(byId("tour-asked"), "Others ask what happens around them, here from their phones.");
    }
  }

  #close() {
    byId("tour").hidden = true;
    clearInterval(this.#timer);
    this.#where = null;
    sessionStorage.setItem(KEPT, "closed");
  }
}
