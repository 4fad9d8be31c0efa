// Subscriptions on the map. One that asks only for what is unseen and whose user asks again is a
// driver on the move: its dot glides from where it was to where it asked now, in the time between
// the two questions. So a dot is never ahead of what the server said, and at most one question behind.
//
//   slot i:   fromX[i] fromY[i] -> toX[i] toY[i]   degrees       start[i] .. start[i] + takes[i]  seconds
//             until[i]   seconds, when its window ends           told[i]   seconds, lit until then
//             metres[i]  its radius                              moves[i]  1 for a driver, 0 for who stands still
//
// Columns of numbers, one loop a frame, no object a dot. Slots of ended windows are used again.

const LINGER_S = 1.5; // how long a dot stays after its window: the next question may be on its way
const TOLD_S = 1.3;
const CIRCLES = 60;
const CIRCLE_PIXELS = 20;
const FAR_DEGREES = 1.0; // nobody drives so far between two questions: that is a jump

export class Drivers {
  constructor() {
    this.capacity = 0;
    this.high = 0; // slots in use lie below
    this.count = 0;
    this.free = [];
    this.users = []; // slot -> user
    this.ids = []; // slot -> its subscriptions, oldest first
    this.byUser = new Map();
    this.bySubscription = new Map();
    this.moving = 0; // seconds until which some dot glides or is lit
    this.changed = false; // since the last frame
    this.#grow(8192);
  }

  /** The server told of a subscription. place: its middle {lon, lat, metres}. */
  tell(subscription, place, until, now) {
    const known = subscription.unseen ? this.byUser.get(subscription.user) : undefined;
    const slot = known ?? this.bySubscription.get(subscription.id) ?? this.#take(subscription, place, now);
    if (known !== undefined) this.#glide(slot, place, now);
    const ids = this.ids[slot];
    if (ids[ids.length - 1] !== subscription.id) ids.push(subscription.id);
    if (ids.length > 3) this.bySubscription.delete(ids.shift());
    this.bySubscription.set(subscription.id, slot);
    this.until[slot] = until;
    this.metres[slot] = place.metres;
    this.changed = true;
    return slot;
  }

  /** Who holds a subscription that was answered: the slot, or -1. Told live, it lights up. */
  answer(id, now, past) {
    const slot = this.bySubscription.get(id);
    if (slot === undefined) return -1;
    if (!past) {
      this.told[slot] = now + TOLD_S;
      this.moving = Math.max(this.moving, this.told[slot]);
      this.changed = true;
    }
    return slot;
  }

  /** A subscription was cancelled. Its dot goes with the next sweep, unless its user has asked again. */
  end(id, now) {
    const slot = this.bySubscription.get(id);
    if (slot === undefined || this.ids[slot].at(-1) !== id) return;
    this.until[slot] = Math.min(this.until[slot], now - LINGER_S);
  }

  /** Where a dot is now; kept in lonNow and latNow. */
  place(slot, now) {
    const share = Math.min((now - this.start[slot]) / this.takes[slot], 1);
    this.lonNow = this.fromX[slot] + (this.toX[slot] - this.fromX[slot]) * share;
    this.latNow = this.fromY[slot] + (this.toY[slot] - this.fromY[slot]) * share;
  }

  /** Forget those whose window is over. Call it about once a second. */
  sweep(now) {
    for (let slot = 0; slot < this.high; slot++) {
      if (this.until[slot] === 0 || this.until[slot] + LINGER_S > now) continue;
      this.until[slot] = 0;
      this.byUser.delete(this.users[slot]);
      for (const id of this.ids[slot]) this.bySubscription.delete(id);
      this.ids[slot] = [];
      this.free.push(slot);
      this.count -= 1;
      this.changed = true; // there is one less to draw
    }
  }

  clear() {
    this.sweep(Infinity);
    this.high = 0;
    this.free = [];
  }

  /** Whether dots have to be drawn again for this moment: some glide, or something changed since the last
   *  look, however long ago that was. Frames can be far apart, and the clock jumps when the server is first
   *  heard, so a span of time alone would let a dot be told and never drawn. */
  busy(now) {
    const changed = this.changed;
    this.changed = false;
    return changed || (this.count > 0 && now < this.moving);
  }

  /** All dots, in device pixels; those just told lie above the others, in the colour of answers. A dot is a
   *  small square, with its corners cut off where there are pixels for it: one or two rectangles, which a
   *  canvas fills many times faster than it copies a picture or strokes a path of arcs. */
  draw(context, view, scale, colours, now) {
    const size = 2.3 + Math.min(Math.log2(view.closeness()) * 0.6, 1.7);
    const side = Math.max(Math.round(size * scale), 2);
    context.fillStyle = colours.driver;
    const lit = this.#drawDots(context, view, scale, side, now, false);
    if (!lit) return;
    context.fillStyle = colours.answer;
    this.#drawDots(context, view, scale, side + Math.round(scale), now, true);
  }

  /** The dots that were told just now, or the others; gives how many of the told there are. */
  #drawDots(context, view, scale, side, now, wanted) {
    const { fromX, fromY, toX, toY, start, takes, until, told } = this;
    const [kx, ky] = [view.kx * scale, view.ky * scale];
    const [west, north] = [view.west, view.north];
    const [width, height] = [view.width * scale + 8, view.height * scale + 8];
    const cut = Math.floor(side / 5);
    const half = side >> 1;
    let lit = 0;
    for (let i = 0; i < this.high; i++) {
      if (until[i] === 0) continue;
      const is = told[i] > now;
      if (is) lit += 1;
      if (is !== wanted) continue;
      let share = (now - start[i]) / takes[i];
      if (share > 1) share = 1;
      const x = ((fromX[i] + (toX[i] - fromX[i]) * share - west) * kx + 0.5) | 0;
      const y = ((north - fromY[i] - (toY[i] - fromY[i]) * share) * ky + 0.5) | 0;
      if (x < -8 || y < -8 || x > width || y > height) continue;
      context.fillRect(x - half + cut, y - half, side - 2 * cut, side);
      if (cut) context.fillRect(x - half, y - half + cut, side, side - 2 * cut);
    }
    return lit;
  }

  /** The circles they watch, where those are wide enough to see and few enough to tell apart. */
  drawCircles(context, view, colour, now) {
    let seen = 0;
    context.beginPath();
    for (let i = 0; i < this.high && seen <= CIRCLES; i++) {
      if (this.until[i] === 0) continue;
      const radius = view.pixels(this.metres[i]);
      if (radius < CIRCLE_PIXELS || radius > 4 * view.width) continue;
      this.place(i, now);
      const [x, y] = [view.x(this.lonNow), view.y(this.latNow)];
      if (x < -radius || y < -radius || x > view.width + radius || y > view.height + radius) continue;
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 7);
      seen += 1;
    }
    if (seen > CIRCLES) return;
    context.strokeStyle = colour;
    context.lineWidth = 1;
    context.globalAlpha = 0.3;
    context.stroke();
    context.globalAlpha = 1;
  }

  #take(subscription, place, now) {
    if (this.free.length === 0 && this.high === this.capacity) this.#grow(this.capacity * 2);
    const slot = this.free.pop() ?? this.high++;
    this.users[slot] = subscription.user;
    this.moves[slot] = Number(subscription.unseen);
    this.ids[slot] = [];
    if (subscription.unseen) this.byUser.set(subscription.user, slot);
    this.fromX[slot] = this.toX[slot] = place.lon;
    this.fromY[slot] = this.toY[slot] = place.lat;
    this.start[slot] = now;
    this.takes[slot] = 1;
    this.told[slot] = 0;
    this.count += 1;
    return slot;
  }

  #glide(slot, place, now) {
    this.place(slot, now);
    const jump = Math.abs(place.lon - this.lonNow) > FAR_DEGREES || Math.abs(place.lat - this.latNow) > FAR_DEGREES;
    const takes = Math.min(Math.max(now - this.start[slot], 0.1), 6);
    this.fromX[slot] = jump ? place.lon : this.lonNow;
    this.fromY[slot] = jump ? place.lat : this.latNow;
    this.toX[slot] = place.lon;
    this.toY[slot] = place.lat;
    this.start[slot] = now;
    this.takes[slot] = takes;
    this.moving = Math.max(this.moving, now + takes);
  }

  #grow(capacity) {
    for (const name of ["fromX", "fromY", "toX", "toY", "start", "takes", "until", "told", "metres", "moves"]) {
      const grown = new Float64Array(capacity);
      if (this[name]) grown.set(this[name]);
      this[name] = grown;
    }
    this.capacity = capacity;
  }
}
