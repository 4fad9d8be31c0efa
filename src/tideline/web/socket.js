// A WebSocket that comes back: tried again after 0.5, 1, 2, 4, then every 8 seconds, sooner when the
// page is looked at again. What it says on opening and what it does with messages is its owner's.
//
//   idle --open()--> connecting --> open --lost--> waiting --> connecting ...
//                                    \--shut(), or refused--> idle
//
// A WebSocket of a browser carries no header: the token is its first message.

const PAUSES_S = [0.5, 1, 2, 4, 8];
const SILENCE_S = 50; // the server sends a beat more often than that
const BAD_TOKEN = 4401;
const REFUSED = [4400, 4403]; // trying again would not help

export class Socket {
  /** on: {opened(), message(document), state(name, pauseSeconds)} */
  constructor(api, path, query, on) {
    Object.assign(this, { api, path, query, on, state: "idle", tries: 0 });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.state === "waiting") this.retry();
    });
    setInterval(() => this.#listen(), 5000);
  }

  open() {
    if (this.state === "idle") this.#connect();
  }

  /** Hang up and stay so. */
  shut() {
    clearTimeout(this.timer);
    const { socket } = this;
    this.socket = null;
    socket?.close(1000);
    this.#become("idle");
  }

  /** Try now instead of later. */
  retry() {
    if (this.state !== "waiting") return;
    clearTimeout(this.timer);
    this.#connect();
  }

  /** Send a document; false when there is no connection. */
  send(document) {
    if (this.state !== "open") return false;
    this.socket.send(JSON.stringify(document));
    return true;
  }

  #connect() {
    this.#become("connecting");
    const socket = this.api.socket(this.path, this.query);
    this.socket = socket;
    let opened = false;
    socket.onopen = () => {
      if (socket !== this.socket) return;
      opened = true;
      if (this.api.token) socket.send(JSON.stringify({ do: "hello", token: this.api.token }));
      this.heard = performance.now();
      this.#become("open");
      this.on.opened();
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.heard = performance.now();
      const message = JSON.parse(data);
      if (message.error && message.tag === undefined) return; // why it is about to be closed
      this.tries = 0;
      this.on.message(message);
    };
    socket.onclose = ({ code, reason }) => {
      if (socket === this.socket) this.#lost(opened && code !== BAD_TOKEN, code, reason);
    };
  }

  async #lost(opened, code, reason) {
    this.socket = null;
    if (REFUSED.includes(code)) {
      this.#become("idle");
      this.on.refused?.(reason, code);
      return;
    }
    const pause = PAUSES_S[Math.min(this.tries++, PAUSES_S.length - 1)];
    this.#become("waiting", pause);
    this.timer = setTimeout(() => this.#connect(), pause * 1000);
    // A browser does not say why a WebSocket was refused. A plain call does, and asks for a token.
    if (!opened) {
      const used = this.api.token;
      await this.api.get("/v1/channels").catch(() => null);
      if (this.api.token !== used) this.retry();
    }
  }

  /** A connection that says nothing for too long is dead, though nobody closed it. */
  #listen() {
    if (this.state === "open" && performance.now() - this.heard > SILENCE_S * 1000) this.socket.close(4000);
  }

  #become(state, pause = 0) {
    this.state = state;
    this.on.state(state, pause);
  }
}
