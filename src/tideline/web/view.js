// What part of the map is seen, and where a place lies on the screen.
//
//   x = (lon - west) * kx        y = (north - lat) * ky        in CSS pixels from the top left
//
// A plate carree squeezed by the cosine of the middle latitude: linear, so that thousands of places
// are placed by one multiplication each, and good to a few per cent over one state.

const METRES_PER_DEGREE = 111_195;
const EDGE = 12; // pixels around the bounds when all of it is shown

export class View {
  /** bounds: [west, south, east, north] of the channel's space. */
  constructor(bounds) {
    this.bounds = bounds;
    this.squeeze = Math.cos(((bounds[1] + bounds[3]) / 2) * (Math.PI / 180));
    this.width = this.height = 1;
    this.west = bounds[0];
    this.north = bounds[3];
    this.kx = this.ky = 1;
    this.version = 0; // grows with every change: what was drawn for another version is stale
  }

  /** The size of the map in pixels; what was in the middle stays there. */
  resize(width, height) {
    if (width === this.width && height === this.height) return;
    const whole = this.isWhole();
    const middle = [this.lon(this.width / 2), this.lat(this.height / 2)];
    this.width = width;
    this.height = height;
    if (whole) this.fit();
    else this.#settle(this.ky, middle[0], middle[1]);
  }

  /** Show all of the bounds. */
  fit() {
    const [west, south, east, north] = this.bounds;
    this.#settle(this.#least(), (west + east) / 2, (south + north) / 2);
  }

  /** Bring a place to the middle, so many metres across the smaller side at most. */
  show(lon, lat, metres) {
    const side = Math.min(this.width, this.height);
    const ky = Math.min((side / metres) * METRES_PER_DEGREE, this.#least() * 80);
    this.#settle(Math.max(ky, this.ky), lon, lat);
  }

  /** What is seen now, and what would be seen with a place in the middle: {ky, lon, lat}. */
  here() { return { ky: this.ky, lon: this.lon(this.width / 2), lat: this.lat(this.height / 2) }; }
  at(lon, lat, metres) {
    const ky = (Math.min(this.width, this.height) / metres) * METRES_PER_DEGREE;
    return { ky: Math.min(Math.max(ky, this.#least()), this.#least() * 80), lon, lat };
  }

  /** See that. */
  goTo({ ky, lon, lat }) { this.#settle(ky, lon, lat); }

  isWhole() {
    return this.version === 0 || this.ky <= this.#least() * 1.001;
  }

  /** How many times larger than the whole. */
  closeness() { return Math.max(this.ky / this.#least(), 1); }

  /** Zoom by a factor, keeping what is at (x, y) there. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const least = this.#least();
    const ky = Math.min(Math.max(this.ky * factor, least), least * 80);
    const lon = this.lon(x) - (x - this.width / 2) / (ky * this.squeeze);
    const lat = this.lat(y) + (y - this.height / 2) / ky;
    this.#settle(ky, lon, lat);
  }

  pan(dx, dy) {
    this.#settle(this.ky, this.lon(this.width / 2 - dx), this.lat(this.height / 2 - dy));
  }

  x(lon) { return (lon - this.west) * this.kx; }
  y(lat) { return (this.north - lat) * this.ky; }
  lon(x) { return this.west + x / this.kx; }
  lat(y) { return this.north - y / this.ky; }

  /** Pixels of a distance on the ground. */
  pixels(metres) { return (metres / METRES_PER_DEGREE) * this.ky; }
  metres(pixels) { return (pixels / this.ky) * METRES_PER_DEGREE; }

  /** Whether a place may be named: inside the bounds. */
  holds(lon, lat) {
    const [west, south, east, north] = this.bounds;
    return lon >= west && lon <= east && lat >= south && lat <= north;
  }

  /** Whether a place is in the picture. */
  sees(lon, lat) {
    const [x, y] = [this.x(lon), this.y(lat)];
    return x >= 0 && y >= 0 && x <= this.width && y <= this.height;
  }

  #least() {
    const [west, south, east, north] = this.bounds;
    const across = (this.width - 2 * EDGE) / ((east - west) * this.squeeze);
    return Math.max(Math.min(across, (this.height - 2 * EDGE) / (north - south)), 1e-6);
  }

  #settle(ky, lon, lat) {
    const [west, south, east, north] = this.bounds;
    this.ky = ky;
    this.kx = ky * this.squeeze;
    // The middle of the screen never leaves the bounds.
    this.west = Math.min(Math.max(lon, west), east) - this.width / 2 / this.kx;
    this.north = Math.min(Math.max(lat, south), north) + this.height / 2 / this.ky;
    this.version += 1;
  }
}
