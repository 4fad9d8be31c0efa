// Pointer on the map: mouse, touch and keys, turned into three wishes.
//
//   act(lon, lat)           a click, a tap, or Enter at the cursor
//   circle(lon, lat, m)     a circle was drawn by dragging (tool "subscribe")
//   point(lon, lat)         the pointer or the cursor is here: for the readout
//
// Dragging pans with the other tools; wheel and pinch zoom with all of them. Keys: arrows move the
// cursor (Shift: farther), Enter acts, + and - zoom, 0 shows everything, Escape lets go.

const DRAG_PIXELS = 5;
const STEP = 10;

export class Pointer {
  constructor(stage, element, wishes) {
    Object.assign(this, { stage, element, wishes, tool: "look" });
    this.pointers = new Map();
    this.drag = null; // {x, y, moved}
    element.addEventListener("pointerdown", (event) => this.#down(event));
    element.addEventListener("pointermove", (event) => this.#move(event));
    element.addEventListener("pointerup", (event) => this.#up(event, true));
    element.addEventListener("pointercancel", (event) => this.#up(event, false));
    element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    element.addEventListener("keydown", (event) => this.#key(event));
    element.addEventListener("focus", () => this.#showCursor());
  }

  use(tool) {
    this.tool = tool;
    this.element.dataset.tool = tool;
    this.letGo();
  }

  letGo() {
    this.drag = null;
    this.stage.draft = null;
    this.stage.touch();
  }

  zoom(factor) {
    const { stage } = this;
    const at = stage.cursor && [stage.view.x(stage.cursor.lon), stage.view.y(stage.cursor.lat)];
    stage.view.zoom(factor, ...(at && this.#visible(at) ? at : []));
  }

  setCursor(lon, lat) {
    this.stage.cursor = { lon, lat };
    this.stage.touch();
    this.wishes.point(lon, lat);
  }

  #down(event) {
    if (event.button > 0) return;
    const at = this.#at(event);
    this.pointers.set(event.pointerId, at);
    // A pointer made by a script is not there to be captured.
    try { this.element.setPointerCapture(event.pointerId); } catch { /* goes without */ }
    if (this.pointers.size === 2) {
      this.letGo();
      this.pinch = this.#spread();
    } else if (this.pointers.size === 1) {
      this.drag = { x: at.x, y: at.y, moved: false };
    }
  }

  #move(event) {
    const { view } = this.stage;
    const at = this.#at(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") this.wishes.point(view.lon(at.x), view.lat(at.y));
      return;
    }
    this.pointers.set(event.pointerId, at);
    if (this.pointers.size === 2) {
      const now = this.#spread();
      view.zoom(now.far / this.pinch.far, now.x, now.y);
      view.pan(now.x - this.pinch.x, now.y - this.pinch.y);
      this.pinch = now;
      return;
    }
    const { drag } = this;
    if (!drag) return;
    drag.moved ||= Math.hypot(at.x - drag.x, at.y - drag.y) > DRAG_PIXELS;
    if (!drag.moved) return;
    if (this.tool === "subscribe") {
      const metres = view.metres(Math.hypot(at.x - drag.x, at.y - drag.y));
      this.stage.draft = { lon: view.lon(drag.x), lat: view.lat(drag.y), metres };
      this.stage.touch();
      this.wishes.drawing(metres);
    } else {
      view.pan(at.x - before.x, at.y - before.y);
    }
  }

  #up(event, acts) {
    if (!this.pointers.delete(event.pointerId)) return;
    const { drag, stage } = this;
    const draft = stage.draft;
    this.letGo();
    if (!acts || !drag || this.pointers.size > 0) return;
    if (draft) {
      this.wishes.circle(draft.lon, draft.lat, draft.metres);
    } else if (!drag.moved) {
      const [lon, lat] = [stage.view.lon(drag.x), stage.view.lat(drag.y)];
      this.setCursor(lon, lat);
      this.wishes.act(lon, lat);
    }
  }

  #wheel(event) {
    // Without a key the wheel scrolls a page that is longer than the window, as on a phone.
    if (!event.ctrlKey && !event.metaKey && document.documentElement.scrollHeight > innerHeight + 1) return;
    event.preventDefault();
    const at = this.#at(event);
    this.stage.view.zoom(Math.exp(-event.deltaY * 0.0016), at.x, at.y);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? STEP * 6 : STEP;
    const moves = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far] };
    if (moves[event.key]) this.#step(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this.#actAtCursor();
    else if (event.key === "+" || event.key === "=") this.zoom(1.5);
    else if (event.key === "-") this.zoom(1 / 1.5);
    else if (event.key === "0") this.stage.view.fit();
    else if (event.key === "Escape") this.letGo();
    else return;
    event.preventDefault();
  }

  #step(dx, dy) {
    this.#showCursor();
    const { view, cursor } = this.stage;
    const [west, south, east, north] = view.bounds;
    const lon = Math.min(Math.max(cursor.lon + dx / view.kx, west), east);
    const lat = Math.min(Math.max(cursor.lat - dy / view.ky, south), north);
    const [x, y] = [view.x(lon), view.y(lat)];
    if (!this.#visible([x, y])) view.pan(-dx, -dy);
    this.setCursor(lon, lat);
  }

  #actAtCursor() {
    this.#showCursor();
    this.wishes.act(this.stage.cursor.lon, this.stage.cursor.lat);
  }

  /** A cursor that was never moved, or is out of sight, starts in the middle. */
  #showCursor() {
    const { view, cursor } = this.stage;
    if (cursor && this.#visible([view.x(cursor.lon), view.y(cursor.lat)])) return;
    if (!cursor && this.pointers.size > 0) return; // it comes where the pointer is
    this.setCursor(view.lon(view.width / 2), view.lat(view.height / 2));
  }

  #visible([x, y]) {
    const { view } = this.stage;
    return x >= 16 && y >= 16 && x <= view.width - 16 && y <= view.height - 16;
  }

  #at(event) {
    const box = this.element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #spread() {
    const [a, b] = [...this.pointers.values()];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, far: Math.max(Math.hypot(a.x - b.x, a.y - b.y), 10) };
  }
}
