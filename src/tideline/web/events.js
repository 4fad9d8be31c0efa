// Events on the map: a mark for as long as each is valid, a ring when it is new.
//
// Marks change a few times a second and are drawn then; rings are drawn every frame while they last.

const RING_S = 1.4;
const RINGS = 200;
const MARKS = 20_000; // beyond that the oldest marks go; the counters still count them all

export class Events {
  constructor() {
    this.marks = new Map(); // id -> {lon, lat, until}, oldest first
    this.rings = []; // [lon, lat, start, mine]
    this.changed = true;
  }

  /** The server told of an event. `fresh`: it has just happened, so it gets a ring. */
  tell(id, place, until, now, fresh, mine = false) {
    this.marks.set(id, { lon: place.lon, lat: place.lat, metres: place.metres, until });
    if (this.marks.size > MARKS) this.marks.delete(this.marks.keys().next().value);
    if (fresh && this.rings.length < RINGS) this.rings.push([place.lon, place.lat, now, mine]);
    this.changed = true;
  }

  get(id) { return this.marks.get(id); }

  /** An event was retracted. */
  end(id) { if (this.marks.delete(id)) this.changed = true; }

  /** Forget those that are no longer valid. Call it about once a second. */
  sweep(now) {
    for (const [id, mark] of this.marks) {
      if (mark.until > now) continue;
      this.marks.delete(id);
      this.changed = true;
    }
  }

  clear() {
    this.marks.clear();
    this.rings = [];
    this.changed = true;
  }

  /** All marks: diamonds, in one path. */
  draw(context, view, colours) {
    this.changed = false;
    const reach = view.width < 560 ? 2.8 : 3.7;
    context.beginPath();
    for (const { lon, lat } of this.marks.values()) {
      const [x, y] = [view.x(lon), view.y(lat)];
      if (x < -8 || y < -8 || x > view.width + 8 || y > view.height + 8) continue;
      context.moveTo(x, y - reach);
      context.lineTo(x + reach, y);
      context.lineTo(x, y + reach);
      context.lineTo(x - reach, y);
      context.closePath();
    }
    context.lineWidth = 1.5;
    context.strokeStyle = colours.land;
    context.stroke();
    context.fillStyle = colours.event;
    context.fill();
    this.#drawShapes(context, view, colours);
  }

  /** The rings of new events. */
  drawRings(context, view, colours, now) {
    const wide = view.width < 560 ? 13 : 23;
    this.rings = this.rings.filter(([, , start]) => now - start < RING_S);
    for (const [lon, lat, start, mine] of this.rings) {
      const share = (now - start) / RING_S;
      const eased = 1 - (1 - share) ** 3;
      context.globalAlpha = 0.9 * (1 - share);
      context.strokeStyle = mine ? colours.mine : colours.event;
      context.lineWidth = 2.5 * (1 - share) + 0.5;
      context.beginPath();
      context.arc(view.x(lon), view.y(lat), 3 + wide * eased, 0, 7);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** The circles of events that are not points, once those are wide enough to see. */
  #drawShapes(context, view, colours) {
    context.strokeStyle = colours.event;
    context.lineWidth = 1;
    context.globalAlpha = 0.4;
    context.beginPath();
    for (const { lon, lat, metres } of this.marks.values()) {
      const radius = metres > 0 ? view.pixels(metres) : 0;
      if (radius < 6 || radius > 4 * view.width) continue;
      context.moveTo(view.x(lon) + radius, view.y(lat));
      context.arc(view.x(lon), view.y(lat), radius, 0, 7);
    }
    context.stroke();
    context.globalAlpha = 1;
  }
}
