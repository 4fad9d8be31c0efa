// The tree of cells over the map, and how its cells light up.
//
//   +---+---+    As in the store: a cell has four children, 1 north-west, 2 north-east, 3 south-west,
//   | 1 | 2 |    4 south-east; a point lies in one leaf, a shape in the smallest cell that holds it.
//   +---+---+    Columns count from the west, rows from the south.
//   | 3 | 4 |
//   +---+---+    A leaf is too small to see in the whole state, so a cell lights up at the finest level
//                that is some pixels wide. A new event also shows the way down: root, child, ... leaf.
//
// The tree is worked out from the channel's space; where something happened comes from the server.

const LEAST_PIXELS = 12;
const ASK_S = 1.1;
const EVENT_S = 2.2;
const WAY_S = 0.9;
const WAYS = 24;

export class Cells {
  /** space: what the server says of the channel, {kind, bounds, depth} or {kind, bounds, rows, cols}. */
  constructor(space) {
    const [west, south, east, north] = space.bounds;
    Object.assign(this, { west, south, east, north });
    this.grid = space.kind === "grid";
    this.cols = space.cols ?? 2 ** space.depth;
    this.rows = space.rows ?? 2 ** space.depth;
    this.depth = space.depth ?? Math.ceil(Math.log2(Math.max(this.cols, this.rows)));
    this.level = 0;
    this.lit = new Map(); // cell of the level -> [asked until, happened until]
    this.ways = []; // [lon, lat, start]
  }

  /** The name of a point's cell as the store writes it: a quad path "1.4.2", in a grid "row.col". */
  name(lon, lat) {
    if (!this.grid) return this.key(lon, lat);
    const [col, row] = this.#leaf(lon, lat);
    return `${row}.${col}`;
  }

  /** The path of the leaf of a point in the tree, "1.4.2". */
  key(lon, lat) {
    const [col, row] = this.#leaf(lon, lat);
    const path = [];
    for (let bit = this.depth - 1; bit >= 0; bit--) {
      const east = Math.floor(col / 2 ** bit) % 2;
      const north = Math.floor(row / 2 ** bit) % 2;
      path.push(3 + east - 2 * north);
    }
    return path.join(".");
  }

  /** West, south, east, north of the cell the store names so. */
  named(name) {
    if (!this.grid) return this.extent(name);
    const [row, col] = name.split(".").map(Number);
    return this.#edges(col, row, 1);
  }

  /** West, south, east, north of the cell at a path. */
  extent(key) {
    let [col, row, side] = [0, 0, 2 ** this.depth];
    for (const digit of key === "" ? [] : key.split(".")) {
      side /= 2;
      if (digit === "2" || digit === "4") col += side;
      if (digit === "1" || digit === "2") row += side;
    }
    return this.#edges(col, row, side);
  }

  /** Somebody asked about this place. */
  ask(lon, lat, now) { this.#light(lon, lat, 0, now + ASK_S); }

  /** Something happened at this place. */
  happen(lon, lat, now) {
    this.#light(lon, lat, 1, now + EVENT_S);
    if (this.ways.length < WAYS) this.ways.push([lon, lat, now]);
  }

  /** Whether there is anything to draw. */
  busy() { return this.lit.size > 0; }

  /** The lit cells, fading. */
  draw(context, view, colours, now) {
    this.#choose(view);
    const side = 2 ** (this.depth - this.level);
    const wide = ((this.east - this.west) / this.cols) * side;
    const high = ((this.north - this.south) / this.rows) * side;
    const [w, h] = [wide * view.kx, high * view.ky];
    for (const kind of [0, 1]) {
      context.fillStyle = kind ? colours.event : colours.driver;
      for (const [cell, until] of this.lit) {
        const left = until[kind] - now;
        if (left <= 0) {
          if (kind && until[0] <= now) this.lit.delete(cell);
          continue;
        }
        const x = (this.west + (cell & 0xffff) * wide - view.west) * view.kx;
        const y = (view.north - this.south - (cell >>> 16) * high) * view.ky - h;
        if (x > view.width || y > view.height || x + w < 0 || y + h < 0) continue;
        const share = left / (kind ? EVENT_S : ASK_S);
        context.globalAlpha = kind ? 0.45 * share : 0.2 * share;
        context.fillRect(Math.round(x), Math.round(y), Math.round(x + w) - Math.round(x) - 1, Math.round(y + h) - Math.round(y) - 1);
      }
    }
    context.globalAlpha = 1;
  }

  /** The ways down to what has just happened. */
  drawWays(context, view, colours, now) {
    this.ways = this.ways.filter(([, , start]) => now - start < WAY_S);
    context.strokeStyle = context.fillStyle = colours.event;
    context.lineWidth = 1;
    for (const [lon, lat, start] of this.ways) {
      const done = (now - start) / WAY_S;
      const key = this.key(lon, lat).split(".");
      for (let level = 1; level <= this.depth; level++) {
        const [west, south, east, north] = this.extent(key.slice(0, level).join("."));
        const w = (east - west) * view.kx;
        if (w < 3) break;
        const [x, y] = [Math.round(view.x(west)), Math.round(view.y(north))];
        const [wide, high] = [Math.round(w), Math.round((north - south) * view.ky)];
        // Around the whole picture, or out of it: nothing is to be seen but a tint.
        if (x < 0 && y < 0 && x + wide > view.width && y + high > view.height) continue;
        if (x > view.width || y > view.height || x + wide < 0 || y + high < 0) continue;
        // The deeper, the later it shows.
        const since = done * 1.5 - (level / this.depth) * 0.5;
        if (since <= 0 || since >= 1) continue;
        const alpha = (1 - since) * Math.min(level / 4, 1) * (wide > view.width || high > view.height ? 0.2 : 1);
        context.globalAlpha = 0.06 * alpha;
        context.fillRect(x, y, wide, high);
        context.globalAlpha = 0.65 * alpha;
        context.strokeRect(x + 0.5, y + 0.5, wide, high);
      }
    }
    context.globalAlpha = 1;
  }

  #leaf(lon, lat) {
    const number = (value, low, high, count) =>
      Math.min(Math.max(Math.floor(((value - low) / (high - low)) * count), 0), count - 1);
    return [number(lon, this.west, this.east, this.cols), number(lat, this.south, this.north, this.rows)];
  }

  #edges(col, row, side) {
    const wide = (this.east - this.west) / this.cols;
    const high = (this.north - this.south) / this.rows;
    return [this.west + col * wide, this.south + row * high,
      this.west + (col + side) * wide, this.south + (row + side) * high];
  }

  #light(lon, lat, kind, until) {
    const side = 2 ** (this.depth - this.level);
    const col = Math.floor(((lon - this.west) / (this.east - this.west)) * this.cols / side);
    const row = Math.floor(((lat - this.south) / (this.north - this.south)) * this.rows / side);
    if (col < 0 || row < 0 || col > 0xffff || row > 0xffff) return;
    const cell = col + row * 0x10000;
    const found = this.lit.get(cell);
    if (found) found[kind] = until;
    else this.lit.set(cell, kind ? [0, until] : [until, 0]);
  }

  /** The finest level whose cells can be seen; another level starts dark. */
  #choose(view) {
    const leaf = Math.min(((this.east - this.west) / this.cols) * view.kx, ((this.north - this.south) / this.rows) * view.ky);
    const above = Math.max(0, Math.ceil(Math.log2(LEAST_PIXELS / leaf)));
    const level = Math.min(Math.max(this.depth - above, 0), 15);
    if (level !== this.level) {
      this.level = level;
      this.lit.clear();
    }
  }
}
