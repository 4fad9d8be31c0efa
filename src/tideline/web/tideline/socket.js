// A WebSocket that comes back.
//
//   idle --open()--> connecting --> open --lost--> waiting --> connecting ...
//                                     \--shut(), or refused--> idle
//
// A browser's WebSocket carries no header: the token is its first message. What is said on opening and done
// with messages is its owner's.

import { InvalidRequest, errorOf } from "./errors.js";
import { encode } from "./http.js";

const SILENCE_S = 50; // the server sends a beat more often than that
const OPEN_S = 10; // a connection must be there within so long
const REFUSED = { 4400: "InvalidRequest", 4403: "Forbidden" }; // trying again would not help
const BAD_TOKEN = 4401;
const AGAIN_S = 0.25; // before another connection, when this one was of no use

export class Socket {
  #http;
  #route;
  #on;
  #socket = null;
  #pauses;
  #timer;
  #tries = 0;
  #look = () => { if (!globalThis.document?.hidden) this.retry(); };

  /** on: {opened(), message(document), state(name, pause_s), refused(error)}; each may be left out. */
  constructor(http, route, on) {
    this.#http = http;
    this.#route = route;
    this.#on = on;
    this.#pauses = http.places.pauses();
    this.state = "idle";
  }

  open() {
    if (this.state !== "idle") return;
    if (typeof this.#http.WebSocket !== "function") {
      throw new InvalidRequest("there is no WebSocket here: give one, connect(url, { WebSocket })");
    }
    globalThis.document?.addEventListener("visibilitychange", this.#look);
    globalThis.window?.addEventListener("online", this.#look);
    this.#pauses = this.#http.places.pauses();
    this.#connect();
  }

  /** Hang up and stay so. */
  shut() {
    globalThis.document?.removeEventListener("visibilitychange", this.#look);
    globalThis.window?.removeEventListener("online", this.#look);
    clearTimeout(this.#timer);
    this.#tries += 1;
    this.#hangUp(1000);
    this.#become("idle");
  }

  /** Try now instead of later. */
  retry() {
    if (this.state !== "waiting") return;
    clearTimeout(this.#timer);
    this.#connect();
  }

  /** Give this connection up and make another. */
  again(least = AGAIN_S) {
    this.#hangUp(1000);
    this.#wait(least);
  }

  /** Send documents; false when there is no connection. */
  send(...documents) {
    if (this.state !== "open") return false;
    for (const document of documents) this.#socket.send(encode(document));
    return true;
  }

  async #connect() {
    const tried = ++this.#tries;
    this.#become("connecting");
    let token;
    try {
      token = await this.#http.token();
    } catch (error) {
      this.#refuse(error);
      return;
    }
    if (tried !== this.#tries) return; // shut meanwhile
    const place = this.#http.url;
    const socket = new this.#http.WebSocket(place.replace("http", "ws") + this.#route);
    this.#socket = socket;
    let opened = false;
    this.#deadline(OPEN_S, place);
    socket.onopen = () => {
      if (socket !== this.#socket) return;
      opened = true;
      this.#deadline(SILENCE_S, place);
      socket.send(encode({ do: "hello", token }));
      this.#become("open");
      this.#on.opened?.();
    };
    socket.onmessage = ({ data }) => {
      for (const line of data.split("\n")) {
        if (socket !== this.#socket) return; // it was given up
        const message = JSON.parse(line);
        this.#deadline(SILENCE_S, place);
        if (message.error && message.tag === undefined) { // why it is about to be closed
          if (message.error.kind === "NotLeading") this.#http.places.elsewhere(place, message.error.values?.leader);
          continue;
        }
        if (!message.error) this.#pauses = this.#http.places.pauses(); // it works
        this.#on.message?.(message);
      }
    };
    socket.onclose = ({ code, reason }) => {
      if (socket === this.#socket) this.#lost(opened, code, reason, token, place);
    };
    socket.onerror = () => socket.onclose({}); // Node says nothing more after a failed handshake
  }

  async #lost(opened, code, reason, token, place) {
    this.#socket = null;
    if (!opened) this.#http.places.leave(place);
    if (code in REFUSED) {
      this.#refuse(errorOf({ kind: REFUSED[code], message: reason || "the connection is refused" }, code - 4000));
      return;
    }
    this.#wait();
    if (opened && code !== BAD_TOKEN) return;
    // A browser does not say why a WebSocket was refused. A plain call does, and asks for a token.
    try {
      await this.#http.request("GET", "/v1/channels", { once: true });
      if (token !== (await this.#http.token())) this.retry();
    } catch (error) {
      if (error.status === 401 && this.state !== "idle") this.#refuse(error);
    }
  }

  #refuse(error) {
    this.shut();
    this.#on.refused?.(error);
  }

  #wait(least = 0) {
    const pause = Math.max(this.#pauses.next().value, least);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#connect(), pause * 1000);
    this.#become("waiting", pause); // last: whoever is told may shut it
  }

  /** A connection that says nothing for too long is dead, though nobody closed it. */
  #deadline(seconds, place) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#http.places.leave(place);
      this.again();
    }, seconds * 1000);
  }

  #hangUp(code) {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(code);
  }

  #become(state, pause = 0) {
    this.state = state;
    this.#on.state?.(state, pause);
  }
}
