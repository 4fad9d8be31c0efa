// The map: four canvases on top of each other, each drawn only when something on it changed.
//
//   base    land, water, roads             when the view or the colours change
//   marks   lit cells                      at most 15 times a second, while they change
//   live    drivers, lines, rings, cursor  every frame while anything on it moves
//   top     events, names above them, what was searched for   at most 5 times a second, when an event came or went
//
// Where a machine cannot keep up on a fine screen, live is drawn at one pixel a CSS pixel, as marks
// always is (`coarse`): movement matters more there than edges. Land, names and events stay sharp.
//
// Everything on it was told by the server or by whoever sits in front of it (cursor, drawn circle).
// `stage.now` is the server's time in seconds; stage.tell* take what the server told.

import { drawBasemap, drawLabels } from "./basemap.js";
import { Cells } from "./cells.js";
import { Drivers } from "./drivers.js";
import { Events } from "./events.js";
import { drawFinds } from "./finds.js";
import { Links } from "./links.js";
import { Told } from "./told.js";
import { View } from "./view.js";

const MARKS_EVERY_S = 1 / 15;
const TOP_EVERY_S = 1 / 5; // the ring of a new event is there at once, its mark a moment later
const SWEEP_EVERY_S = 0.5;
const FEW_FRAMES = 50; // a second
const SLOW_SECONDS = 3;
const FLIGHT_MS = 1100;
const CLOSE = 8; // times closer than the whole

export class Stage {
  /** element: the box with four canvases. space: of the channel. land, roads, city: the files. */
  constructor(element, space, land, roads, city) {
    this.element = element;
    this.land = land;
    this.roads = roads;
    this.city = city;
    this.view = new View(space.bounds);
    this.cells = new Cells(space);
    this.drivers = new Drivers();
    this.events = new Events();
    this.links = new Links();
    this.told = new Told();
    this.flight = null; // {from, to, start}: on the way to a place
    this.mine = new Map(); // id -> {lon, lat, metres, label, faint}
    this.cursor = null; // {lon, lat}
    this.places = []; // {lon, lat, name, active}: what was searched for
    this.draft = null; // {lon, lat, metres}: a circle being drawn
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.coarse = false;
    this.shown = true;
    this.offset = 0; // server's seconds minus this page's
    this.frames = { count: 0, since: performance.now(), perSecond: 0, longestMs: 0, last: 0, slow: 0 };
    const [base, marks, live, top] = element.querySelectorAll("canvas");
    this.layers = { base, marks, live, top };
    this.contexts = {
      base: base.getContext("2d", { alpha: false }),
      marks: marks.getContext("2d"),
      live: live.getContext("2d"),
      top: top.getContext("2d"),
    };
    this.drawn = { base: -1, marks: 0, top: 0, sweep: 0, wasBusy: true, wasLit: false };
    this.touched = true;
    new ResizeObserver(() => this.#resize()).observe(element);
    this.#resize();
    this.recolour();
    requestAnimationFrame(() => this.#frame());
  }

  /** The server's time now, in seconds. */
  get now() { return performance.now() / 1000 + this.offset; }

  /** The server said what time it is. */
  setTime(seconds) {
    const offset = seconds - performance.now() / 1000;
    // A late message is a slow network rather than a slower clock: follow the fastest ones at once,
    // the others slowly.
    if (this.offset === 0 || offset > this.offset || this.offset - offset > 5) this.offset = offset;
    else this.offset += (offset - this.offset) * 0.01;
  }

  /** Draw, or do not while nobody sees it. */
  show(shown) {
    this.shown = shown;
    Object.assign(this.frames, { count: 0, since: performance.now(), last: 0, slow: 0, longestMs: 0 });
  }

  /** Something of the reader's own changed: draw again. */
  touch() { this.touched = true; }

  /** Places that were searched for. */
  showPlaces(places) {
    this.places = places;
    this.drawn.top = 0;
    this.events.changed = true;
  }

  tellSubscription(subscription, place, until) {
    const now = this.now;
    if (this.mine.has(subscription.id)) return;
    this.drivers.tell(subscription, place, until, now);
    this.cells.ask(place.lon, place.lat, now);
  }

  tellEvent(id, place, until, fresh, mine = false) {
    const now = this.now;
    const known = this.events.get(id);
    this.events.tell(id, place, until, now, fresh && !known, mine);
    if (fresh && !known) this.cells.happen(place.lon, place.lat, now);
  }

  tellCancelled(id) { this.drivers.end(id, this.now); }

  tellRetracted(id) { this.events.end(id); }

  /** A line from an event to whoever was told, where both are known on this map. */
  tellAnswer(subscription, event, past) {
    const now = this.now;
    const from = this.events.get(event);
    const mine = this.mine.get(subscription);
    const slot = mine ? -1 : this.drivers.answer(subscription, now, past);
    this.told.add(event, mine ? "you" : this.drivers.users[slot]);
    if (!from || (!mine && slot < 0)) return;
    if (!mine && this.view.closeness() > CLOSE) { // who is told far away would only cross the picture
      this.drivers.place(slot, now);
      if (!this.view.sees(from.lon, from.lat) || !this.view.sees(this.drivers.lonNow, this.drivers.latNow)) return;
    }
    this.links.add(from, slot, mine, now, past, mine || !this.drivers.moves[slot]);
  }

  /** Go to a place, so many metres across the smaller side; at once for whoever wants less motion. */
  flyTo(lon, lat, metres) {
    if (this.calm.matches || document.hidden) {
      this.flight = null;
      this.view.goTo(this.view.at(lon, lat, metres));
    } else {
      this.flight = { from: this.view.here(), to: this.view.at(lon, lat, metres), start: performance.now() };
    }
  }

  /** Stay here: somebody has taken the map into their own hands. */
  stay() { this.flight = null; }

  #fly() {
    const { from, to, start } = this.flight;
    const share = Math.min((performance.now() - start) / FLIGHT_MS, 1);
    const eased = share < 0.5 ? 4 * share ** 3 : 1 - (-2 * share + 2) ** 3 / 2;
    const closer = Math.log(to.ky / from.ky);
    // Towards the place as fast as the picture grows, so that it stays in sight.
    const moved = Math.abs(closer) < 0.01 ? eased : (1 - Math.exp(-closer * eased)) / (1 - Math.exp(-closer));
    this.view.goTo({
      ky: from.ky * Math.exp(closer * eased), lon: from.lon + (to.lon - from.lon) * moved, lat: from.lat + (to.lat - from.lat) * moved,
    });
    if (share === 1) this.flight = null;
  }

  /** Start again with nothing on the map. */
  clear() {
    this.drivers.clear();
    this.events.clear();
    this.links.clear();
    this.touch();
  }

  /** The colours of the theme, from the style sheet. */
  recolour() {
    const style = getComputedStyle(this.element);
    const colour = (name) => style.getPropertyValue(`--map-${name}`).trim();
    this.colours = { font: style.fontFamily };
    for (const name of ["abroad", "land", "park", "water", "outline", "road", "driver", "event", "answer", "mine", "town", "find"]) {
      this.colours[name] = colour(name);
    }
    this.colours.waterLabel = colour("water-label");
    this.colours.townLabel = colour("town-label");
    this.colours.townLabelStrong = colour("town-label-strong");
    this.drawn.base = -1;
    this.events.changed = true;
    this.touch();
  }

  #resize() {
    const { width, height } = this.element.getBoundingClientRect();
    if (width < 1 || height < 1) return;
    const fine = Math.min(devicePixelRatio || 1, 2);
    const moving = this.coarse ? 1 : fine;
    this.scales = { base: fine, marks: 1, live: moving, top: fine }; // cells keep to CSS pixels
    for (const [name, canvas] of Object.entries(this.layers)) {
      canvas.width = Math.round(width * this.scales[name]);
      canvas.height = Math.round(height * this.scales[name]);
    }
    this.view.resize(width, height);
    this.drawn.base = -1;
    this.touch();
  }

  #frame() {
    requestAnimationFrame(() => this.#frame());
    if (!this.shown || !this.scales) return; // hidden, or never seen
    this.#count();
    if (this.flight) this.#fly();
    const now = this.now;
    const { drawn, view } = this;
    if (now - drawn.sweep > SWEEP_EVERY_S || now < drawn.sweep) {
      drawn.sweep = now;
      this.drivers.sweep(now);
      this.events.sweep(now);
    }
    const moved = drawn.base !== view.version;
    if (moved) {
      drawn.base = view.version;
      this.#draw("base", (context) => drawBasemap(context, view, this.land, this.roads, this.city, this.colours));
      this.touched = true;
    }
    if (moved || (this.events.changed && isDue(drawn.top, now, TOP_EVERY_S))) {
      drawn.top = now;
      this.#draw("top", (context) => {
        this.events.draw(context, view, this.colours);
        const taken = drawFinds(context, view, this.places, this.colours);
        drawLabels(context, view, this.land, this.roads, this.colours, taken);
      });
    }
    // One picture more than there are lit cells, so that the last one is dark.
    const lit = this.cells.busy();
    if (moved || ((lit || drawn.wasLit) && isDue(drawn.marks, now, MARKS_EVERY_S))) {
      drawn.marks = now;
      drawn.wasLit = lit;
      this.#draw("marks", (context) => this.cells.draw(context, view, this.colours, now));
    }
    // One frame more than there is movement, so that the last picture is of the end of it.
    const busy = this.touched || this.drivers.busy(now) || this.links.links.length > 0 ||
      this.events.rings.length > 0 || this.cells.ways.length > 0;
    if (busy || drawn.wasBusy) this.#draw("live", (context) => this.#drawLive(context, now));
    drawn.wasBusy = busy;
  }

  #drawLive(context, now) {
    this.touched = false;
    const { view, colours } = this;
    const scale = this.scales.live;
    if (!this.calm.matches) this.cells.drawWays(context, view, colours, now);
    this.#drawMine(context);
    this.drivers.drawCircles(context, view, colours.driver, now);
    context.setTransform(1, 0, 0, 1, 0, 0); // dots keep to whole pixels
    this.drivers.draw(context, view, scale, colours, now);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    this.links.draw(context, view, this.drivers, colours, now);
    if (this.calm.matches) this.events.rings = [];
    else this.events.drawRings(context, view, colours, now);
    this.#drawHand(context);
  }

  /** The reader's own subscriptions. */
  #drawMine(context) {
    const { view, colours } = this;
    for (const circle of this.mine.values()) {
      const [x, y, radius] = [view.x(circle.lon), view.y(circle.lat), view.pixels(circle.metres)];
      context.globalAlpha = circle.faint ? 0.03 : 0.07;
      context.fillStyle = colours.mine;
      context.beginPath();
      context.arc(x, y, radius, 0, 7);
      context.fill();
      context.globalAlpha = circle.faint ? 0.45 : 1;
      context.strokeStyle = colours.mine;
      context.lineWidth = 2;
      context.setLineDash(circle.faint ? [5, 5] : []);
      context.stroke();
      context.setLineDash([]);
      context.font = `600 12px ${colours.font}`;
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.lineWidth = 3;
      context.strokeStyle = colours.land;
      context.strokeText(circle.label, x, y - radius - 9);
      context.fillStyle = colours.mine;
      context.fillText(circle.label, x, y - radius - 9);
      context.globalAlpha = 1;
    }
  }

  /** The cursor and the circle being drawn. */
  #drawHand(context) {
    const { view, colours, cursor, draft } = this;
    context.strokeStyle = colours.mine;
    if (draft) {
      context.lineWidth = 1.5;
      context.setLineDash([4, 4]);
      context.beginPath();
      context.arc(view.x(draft.lon), view.y(draft.lat), view.pixels(draft.metres), 0, 7);
      context.stroke();
      context.setLineDash([]);
    }
    if (!cursor) return;
    const [x, y] = [Math.round(view.x(cursor.lon)) + 0.5, Math.round(view.y(cursor.lat)) + 0.5];
    context.lineWidth = 1.5;
    context.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      context.moveTo(x + dx * 5, y + dy * 5);
      context.lineTo(x + dx * 13, y + dy * 13);
    }
    context.stroke();
  }

  #draw(layer, paint) {
    const context = this.contexts[layer];
    const canvas = this.layers[layer];
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (layer !== "base") context.clearRect(0, 0, canvas.width, canvas.height);
    context.setTransform(this.scales[layer], 0, 0, this.scales[layer], 0, 0);
    paint(context);
  }

  /** Frames of the last second, for the readout. */
  #count() {
    const { frames } = this;
    const now = performance.now();
    frames.count += 1;
    if (frames.last) frames.longestMs = Math.max(frames.longestMs, now - frames.last);
    frames.last = now;
    if (now - frames.since < 1000) return;
    frames.perSecond = (frames.count * 1000) / (now - frames.since);
    this.onFrames?.(frames.perSecond, frames.longestMs);
    frames.slow = frames.perSecond < FEW_FRAMES && !document.hidden ? frames.slow + 1 : 0;
    if (frames.slow >= SLOW_SECONDS && this.scales.live > 1) {
      this.coarse = true;
      this.#resize();
    }
    Object.assign(frames, { count: 0, since: now, longestMs: 0 });
  }
}

/** Whether a layer that was drawn then may be drawn again now. */
const isDue = (drawn, now, every) => now - drawn > every || now < drawn;
