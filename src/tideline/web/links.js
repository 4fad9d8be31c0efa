// Answers on the map: a line from the event to whoever was told. Live answers are strong and grow out
// of the event; past ones, found by a new subscription, are thin and there at once. Of each at most
// LIMIT at a time, and EACH of one event, so that a crowd does not hide the others; those who stand
// still are few and come on top. What comes beyond that is not drawn, but counted as all is.

const LIMIT = 300;
const EACH = 25;
const GROW_S = 0.28;
const LAST_S = 1.6;
const STEPS = 6; // lines of about one age share a stroke

export class Links {
  constructor() {
    this.links = []; // {event, slot | to, start, past}
    this.counts = [0, 0]; // live, past
    this.each = new Map(); // event -> its lines
  }

  /** event: {lon, lat}. Either a driver's slot, or a place of its own {lon, lat}. still: who stands still. */
  add(event, slot, to, now, past, still) {
    const each = this.each.get(event) ?? 0;
    if (this.counts[Number(past)] >= LIMIT || (each >= EACH && !still)) return;
    this.counts[Number(past)] += 1;
    this.each.set(event, each + 1);
    this.links.push({ event, slot, to, start: now, past });
  }

  #end({ event, past }) {
    const left = this.each.get(event) - 1;
    if (left > 0) this.each.set(event, left);
    else this.each.delete(event);
    this.counts[Number(past)] -= 1;
  }

  clear() {
    this.links = [];
    this.counts = [0, 0];
    this.each.clear();
  }

  /** Draw them all. */
  draw(context, view, drivers, colours, now) {
    this.links = this.links.filter((link) => {
      const lasts = now - link.start < LAST_S;
      if (!lasts) this.#end(link);
      return lasts;
    });
    for (const past of [true, false]) {
      context.lineWidth = past ? 0.75 : 1.25;
      context.strokeStyle = past ? colours.driver : colours.answer;
      for (let step = 0; step < STEPS; step++) {
        let any = false;
        context.beginPath();
        for (const link of this.links) {
          const age = now - link.start;
          if (link.past !== past || Math.floor((age / LAST_S) * STEPS) !== step) continue;
          let { to } = link;
          if (link.slot >= 0) {
            drivers.place(link.slot, now);
            to = { lon: drivers.lonNow, lat: drivers.latNow };
          }
          const [x, y] = [view.x(link.event.lon), view.y(link.event.lat)];
          const grown = past ? 1 : Math.min(age / GROW_S, 1);
          context.moveTo(x, y);
          context.lineTo(x + (view.x(to.lon) - x) * grown, y + (view.y(to.lat) - y) * grown);
          any = true;
        }
        if (!any) continue;
        context.globalAlpha = (past ? 0.5 : 0.85) * (1 - (step / STEPS) ** 2);
        context.stroke();
      }
    }
    context.globalAlpha = 1;
  }
}
