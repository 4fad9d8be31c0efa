// The live connection: one WebSocket, /v1/live, that carries all that is followed.
//
// Each stream on it has a number, its tag; the server puts the tag on all it says about the stream. When the
// connection breaks, a new one is made and every stream is asked for again after the last thing it received:
//
// 1. A stream notes where it is with each thing that it hands out, so `request()` asks for what comes next.
// 2. A tag means one stream of one connection: nothing an old one said can be taken for the new.
//
// A call that waits for its reply when the connection breaks is made again: none of them does anything twice
// (a subscription has an id, made by the client if the user gave none). So is one that is over the server's
// rate, after the time that it asks for; and so is resuming a stream.

import { Closed, NotFound, Unavailable, errorOf } from "./errors.js";
import { now, sleep } from "./http.js";
import { Socket } from "./socket.js";

const LOST = new Unavailable("the connection was lost before the server answered");

export class Live {
  #http;
  #streams = new Map(); // tag -> Stream
  #calls = new Map(); // tag -> {resolve, reject}, of requests that are no stream
  #waiting = new Set(); // {resolve, reject} of those who need a connection
  #tags = 0;
  #held = false;
  #onstate;

  constructor(http, onstate) {
    this.#http = http;
    this.#onstate = onstate;
    this.socket = new Socket(http, "/v1/live?lines=1", {
      opened: () => this.#opened(),
      message: (message) => this.#handle(message),
      state: (state, pause) => this.#changed(state, pause),
      refused: (error) => this.#endAll("refused", error),
    });
  }

  hold() {
    this.#held = true;
    this.socket.shut();
  }

  takeUp() {
    this.#held = false;
    if (this.#streams.size > 0) this.socket.open();
    this.socket.retry();
  }

  close() {
    this.socket.shut();
    this.#endAll("closed", null);
  }

  /** Store a subscription and follow it; resolves when its past is there. */
  subscribe(stream, message) {
    return this.#persist(async (limit, tried) => {
      stream.past = [];
      await this.#open(stream, message, limit);
      if (!tried || !stream.duplicate) return;
      // It landed before the connection broke, and what it was answered with was lost.
      this.#streams.delete(stream.tag);
      await this.#open(stream, { ...stream.request(), after: undefined }, limit);
    });
  }

  /** Follow what a stream asks for. */
  follow(stream) {
    return this.#persist((limit) => this.#open(stream, stream.request(), limit));
  }

  /** End a stream: "cancel" or "release". What was sent before has arrived when this resolves. */
  finish(stream, verb) {
    stream.finishing ??= this.#finish(stream, verb).finally(() => { stream.finishing = null; });
    return stream.finishing;
  }

  async #finish(stream, verb) {
    await stream.asking?.catch(() => {});
    try {
      await this.#request(stream, { do: verb });
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
      this.drop(stream);
    }
  }

  /** Ask something about a stream, one thing at a time; resolves when it has heard the answer, `Closed` if it ended. */
  ask(stream, message) {
    const before = Promise.resolve(stream.asking ?? stream.finishing).catch(() => {});
    stream.asking = before.then(() => this.#request(stream, message)).then((asked) => {
      if (!asked) throw stream.error ?? new Closed(`this has ended: ${stream.reason}`);
    });
    return stream.asking;
  }

  /** Whether it was asked: one that has ended is not. */
  async #request(stream, message) {
    if (stream.state === "ended") return false;
    return this.#persist(async (limit) => {
      await this.#until(() => stream.state !== "resuming", limit); // the server may not know its tag yet
      if (stream.state === "ended") return false;
      await this.#reply(limit, (call) => {
        stream.call = call;
        this.#send(call, { ...message, tag: stream.tag });
      });
      return true;
    });
  }

  /** Do not ask for a stream again. */
  drop(stream) {
    this.#streams.delete(stream.tag);
    stream.end("cancelled");
  }

  /** Resolves when all that the server sent before has been handed out. */
  sync() {
    return this.#persist(async (limit) => {
      await this.#until(() => ![...this.#streams.values()].some(({ resting }) => resting), limit);
      return this.#ask({ do: "sync" }, limit);
    });
  }

  /** Publish an event that has an id, if that can be done at once; undefined when a request must do it. */
  async publish(message) {
    if (this.socket.state !== "open") return undefined;
    try {
      return await this.#ask({ do: "publish", ...message }, now() + this.#http.timeout_s);
    } catch (error) {
      if (error === LOST || error.retry_after_s) return undefined;
      throw error;
    }
  }

  /** The reply to a request that is no stream. */
  async #ask(message, limit) {
    const tag = ++this.#tags;
    try {
      return await this.#reply(limit, (call) => {
        this.#calls.set(tag, call);
        this.#send(call, { tag, ...message });
      });
    } finally {
      this.#calls.delete(tag);
    }
  }

  /** Ask on the connection; again when it breaks, or when the server wants time and there is some. */
  async #persist(ask) {
    const limit = now() + this.#http.timeout_s;
    for (let tried = 0; ; tried++) {
      try {
        await this.#connected(limit);
        return await ask(limit, tried);
      } catch (error) {
        if (error === LOST) continue;
        if (!error.retry_after_s || now() + error.retry_after_s >= limit) throw error;
        await sleep(error.retry_after_s);
      }
    }
  }

  async #open(stream, message, limit) {
    const tag = ++this.#tags;
    stream.begin(tag);
    this.#streams.set(tag, stream);
    try {
      await this.#reply(limit, (call) => {
        stream.call = call;
        this.#send(call, { tag, ...message });
      });
    } catch (error) {
      this.#streams.delete(tag);
      throw error;
    }
  }

  /** A promise of what `ask` is replied with, before the limit. */
  #reply(limit, ask, why = `the server does not answer. url=${this.#http.url}`) {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Unavailable(why)), Math.max(limit - now(), 0.001) * 1000);
      const settle = (done) => (value) => { clearTimeout(timer); done(value); };
      ask({ resolve: settle(resolve), reject: settle(reject) });
    });
  }

  async #connected(limit) {
    this.#http.checkOpen();
    if (this.#held) throw new Unavailable("the connection was let go of: reconnect() first");
    if (this.socket.state === "open") return;
    this.socket.open();
    let waits;
    try {
      await this.#reply(limit, (call) => this.#waiting.add(waits = call), `the server cannot be reached. url=${this.#http.url}`);
    } finally {
      this.#waiting.delete(waits);
    }
  }

  #send(call, document) {
    if (!this.socket.send(document)) call.reject(LOST);
  }

  /** Wait for streams that are being resumed. */
  async #until(done, limit) {
    while (!done()) {
      if (now() >= limit) throw new Unavailable("the server is asked too much: streams are still being resumed");
      await sleep(0.02);
    }
  }

  #opened() {
    const streams = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of streams) {
      stream.tag = ++this.#tags;
      stream.state = "resuming";
      this.#streams.set(stream.tag, stream);
      this.socket.send({ tag: stream.tag, ...stream.request() });
    }
    for (const { resolve } of this.#waiting) resolve();
    const behind = streams.filter(({ caughtUp }) => caughtUp);
    if (behind.length === 0) return;
    this.#ask({ do: "sync" }, now() + this.#http.timeout_s) // answered when all that was missed is sent
      .then(() => { for (const stream of behind) stream.caughtUp(); }, () => {});
  }

  #changed(state, pause) {
    if (state !== "open") {
      const error = this.#held || this.#http.closed ? new Unavailable(LOST.message) : LOST;
      for (const [tag, stream] of this.#streams) {
        if (stream.state === "opening") this.#streams.delete(tag);
        else stream.state = "away";
        stream.resting = false;
        stream.call?.reject(error);
        stream.call = null;
      }
      for (const { reject } of this.#calls.values()) reject(error);
      if (this.#held) for (const { reject } of this.#waiting) reject(error);
    }
    this.#onstate(state, pause);
  }

  #endAll(reason, error) {
    for (const { reject } of this.#waiting) reject(error ?? new Closed("the connection to the server was closed"));
    const streams = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of streams) stream.end(reason, error);
  }

  #handle(message) {
    if (message.error?.kind === "NotLeading") { // nothing was done
      this.#http.places.elsewhere(this.#http.url, message.error.values?.leader);
      this.socket.again(0);
      return;
    }
    const call = this.#calls.get(message.tag);
    const stream = this.#streams.get(message.tag);
    if (call) {
      if (message.error) call.reject(errorOf(message.error));
      else call.resolve(message.told ?? message.synced);
    } else if (!stream) { // a beat, `slow` (a close follows), or a stream that was let go of
      for (const [name, version] of Object.entries(message.reached ?? {})) {
        for (const each of this.#streams.values()) each.reached?.(name, version);
      }
    } else if (message.error) {
      this.#failed(stream, errorOf(message.error));
    } else if (message.ended) {
      this.#ended(stream, message.ended);
    } else if (stream.hear(message)) {
      stream.state = "open";
      stream.call?.resolve();
      stream.call = null;
    }
  }

  #ended(stream, reason) {
    if (reason === "closed") {
      this.socket.again(); // the server closed it; it may open it again
      return;
    }
    this.#streams.delete(stream.tag);
    stream.end(reason);
    stream.call?.resolve();
  }

  #failed(stream, error) {
    const { call } = stream;
    stream.call = null;
    if (stream.state === "resuming" && error instanceof Unavailable && !error.values) {
      if (error.retry_after_s) this.#rest(stream, error.retry_after_s);
      else this.socket.again(); // it cannot be resumed now
    } else if (stream.state === "resuming" || !call) {
      this.#streams.delete(stream.tag);
      stream.refuse(error);
      call?.reject(error);
    } else {
      call.reject(error);
    }
  }

  /** Ask for a stream again, after the time that the server wants, on the same connection. */
  #rest(stream, seconds) {
    const { tag } = stream;
    stream.resting = true;
    setTimeout(() => {
      if (this.#streams.get(tag) !== stream || !this.socket.send({ tag, ...stream.request() })) return;
      stream.resting = false;
    }, seconds * 1000);
  }
}
