// The three tools: look (read what is valid around a place), publish, subscribe. Each has a form; a
// click, a drawn circle or Enter at the cursor acts with what the form says. What the server refuses is
// shown where it can be mended: a condition at the condition's field.

import { InvalidRequest, TidelineError } from "../tideline.js";
import { byId, clockTime, element, seconds, setError, setText } from "./dom.js";
import { coordinates, middle, summary } from "./places.js";

const LOOK_PIXELS = 24;
const FLY_METRES = 6000;

export class Inspector {
  constructor(channel, stage, live, user, note) {
    Object.assign(this, { channel, stage, live, user, note, tool: "look", labels: 0 });
    for (const radio of document.querySelectorAll('input[name="tool"]')) {
      radio.addEventListener("change", () => this.use(radio.value));
    }
    byId("tool-publish").addEventListener("submit", (event) => this.#atCursor(event));
    byId("tool-subscribe").addEventListener("submit", (event) => this.#atCursor(event));
    for (const chip of document.querySelectorAll(".chip")) {
      chip.addEventListener("click", () => {
        byId("where").value = chip.dataset.where;
        setError(byId("where"), "");
      });
    }
    byId("body").addEventListener("input", () => setError(byId("body"), ""));
    byId("where").addEventListener("input", () => setError(byId("where"), ""));
  }

  use(tool) {
    this.tool = tool;
    for (const name of ["look", "publish", "subscribe"]) byId(`tool-${name}`).hidden = name !== tool;
    document.querySelector(`input[name="tool"][value="${tool}"]`).checked = true;
    this.onTool?.(tool);
  }

  /** A click or Enter at a place. */
  act(lon, lat) {
    if (!this.stage.view.holds(lon, lat)) return this.note("That place lies outside the channel's bounds.");
    if (this.tool === "publish") return this.publish(lon, lat);
    if (this.tool === "subscribe") return this.subscribe(lon, lat, Number(byId("radius").value) * 1000);
    return this.look(lon, lat);
  }

  async look(lon, lat) {
    const metres = Math.max(this.stage.view.metres(LOOK_PIXELS), 500);
    try {
      const events = await this.channel.find({ circle: [lon, lat, metres] }, { limit: 50 });
      byId("found").replaceChildren(...events.map((event) => this.#found(event)));
      if (events.length === 0) {
        byId("found").replaceChildren(element("li", { class: "hint" }, `Nothing is valid within ${(metres / 1000).toFixed(1)} km.`));
      }
    } catch (error) {
      this.#failed(error);
    }
  }

  /** An event that was found: opened, all there is to say of it, who was told, and a way there. */
  #found(event) {
    const place = middle(event.place, this.stage.cells);
    const told = element("p", { class: "fine" });
    return element("li", { "data-event": event.id }, element("details", {
      toggle: () => setText(told, `${this.stage.told.text(event.id)} · valid until ${event.until ? clockTime(event.until) : "for ever"}${place ? ` · ${coordinates(place.lon, place.lat)}` : ""}`),
    },
    element("summary", {},
      element("span", { class: "text" }, summary(event.body)),
      element("time", { class: "when", datetime: event.at }, clockTime(event.at))),
    element("pre", {}, JSON.stringify(event.body, null, 1)),
    told,
    element("button", { type: "button", click: () => place && this.stage.flyTo(place.lon, place.lat, FLY_METRES) }, "Fly there")));
  }

  async publish(lon, lat) {
    const field = byId("body");
    const extra = parse(field, {});
    if (extra === undefined) return;
    const body = { kind: byId("kind").value, ...extra };
    try {
      const told = await this.channel.publish([round(lon), round(lat)], body, { ttl_s: Number(byId("ttl").value) * 60 });
      const count = told.subscriptions.length;
      setText(byId("published"), `${count === 0 ? "Nobody" : count} told`);
      byId("published").dataset.event = told.event.id;
      this.stage.tellEvent(told.event.id, { lon, lat, metres: 0 }, seconds(told.event.until), true, true);
    } catch (error) {
      this.#failed(error, field);
    }
  }

  async subscribe(lon, lat, metres) {
    const field = byId("where");
    const where = parse(field, null);
    if (where === undefined) return;
    const place = { circle: [round(lon), round(lat), Math.round(metres)] };
    const options = {
      user: this.user, since_s: -60 * Number(byId("back").value), until_s: 60 * Number(byId("ahead").value),
      ...(where === null ? {} : { where }),
    };
    const label = String(this.labels + 1);
    try {
      await this.live.subscribe(place, options, label).catch((error) => {
        // A token of one user speaks for that user alone.
        if (error.kind !== "Forbidden") throw error;
        const { user, ...without } = options;
        return this.live.subscribe(place, without, label);
      });
      this.labels += 1;
      setError(field, "");
    } catch (error) {
      this.#failed(error, field);
    }
  }

  #atCursor(event) {
    event.preventDefault();
    const { stage } = this;
    const middle = { lon: stage.view.lon(stage.view.width / 2), lat: stage.view.lat(stage.view.height / 2) };
    const { lon, lat } = stage.cursor ?? middle;
    this.act(lon, lat);
  }

  /** What was refused goes to its field; what has none, to the banner. */
  #failed(error, field) {
    if (error instanceof InvalidRequest && field) setError(field, error.message);
    else if (error instanceof TidelineError) this.note(error.message);
    else throw error;
  }
}

/** A field's JSON object, `empty` when there is nothing in it, undefined (and an error shown) when it is none. */
function parse(field, empty) {
  const text = field.value.trim();
  setError(field, "");
  if (text === "") return empty;
  try {
    const value = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value;
    setError(field, "This must be a JSON object, such as {\"severity\": 3}.");
  } catch (error) {
    setError(field, `This is not JSON: ${error.message}`);
  }
  return undefined;
}

const round = (degrees) => Math.round(degrees * 1e6) / 1e6;
