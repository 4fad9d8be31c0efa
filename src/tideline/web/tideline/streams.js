// What is followed, as its user holds it: the answers of a subscription, the changes of a collection.
//
//   opening --> open --lost--> away --> resuming --> open ...
//                   \--ended: expired, cancelled, released, replaced, refused, closed
//
//   Followed --> Stream --> Subscription, Changes
//            |          \-> Panes (windows.js)
//            \-> LiveQuery (queries.js)
//
// `live.js` feeds them: begin(tag), request(), hear(message) (true when all of the beginning is there), end().

import { InvalidRequest, NotFound } from "./errors.js";

/** What a connection carries under a tag, from its beginning to its end. */
export class Followed {
  /** "opening", "open", "away" (no connection), "resuming" (what was missed is coming) or "ended". */
  state = "opening";
  /** Why it ended: "expired", "cancelled", "released", "replaced", "dropped", "revoked", "refused" or
   *  "closed"; null before. */
  reason = null;
  tag = 0;
  call = null; // who waits for a reply about it
  asking = null; // the promise of what was asked about it last
  finishing = null; // the promise of its end
  resting = false; // over the server's rate, to be asked for again
  #error = null;
  #onended = null;

  /** It is asked for under a tag; nobody holds it yet, or nothing has come. */
  begin(tag) { Object.assign(this, { tag, state: "opening" }); }

  end(reason, error = null) {
    if (this.state === "ended") return;
    Object.assign(this, { state: "ended", reason });
    this.#error = error;
    this.closed(error);
    if (this.#onended) safely(this.#onended, reason, error);
  }

  /** It has ended: whoever waits must know. */
  closed() {}

  /** The server does not go on with it. */
  refuse(error) { this.end("refused", error); }

  /** What the server refused it with; null when it did not. */
  get error() { return this.#error; }

  /** Called with the reason, and the error if there is one, when nothing more will come. */
  get onended() { return this.#onended; }

  set onended(listener) {
    this.#onended = listener;
    if (listener && this.state === "ended") safely(listener, this.reason, this.#error);
  }
}

/** Things that arrive: for one function, or for whoever iterates. */
export class Stream extends Followed {
  #queue = [];
  #waiting = [];
  #arrived = new Set(); // who waits to be told that something is there
  #listener = null;

  begin(tag) {
    super.begin(tag);
    this.#queue = [];
  }

  deliver(item, how) {
    if (this.#listener) safely(this.#listener, item, how);
    else if (this.#waiting.length > 0) this.#waiting.shift().resolve({ value: item, done: false });
    else this.#queue.push([item, how]);
    this.#tell();
  }

  closed(error) {
    for (const { resolve, reject } of this.#waiting.splice(0)) {
      if (error) reject(error);
      else resolve({ value: undefined, done: true });
    }
    this.#tell();
  }

  #tell() {
    for (const resolve of this.#arrived) resolve();
    this.#arrived.clear();
  }

  listen(listener) {
    this.#listener = listener;
    if (listener) for (const [item, how] of this.#queue.splice(0)) safely(listener, item, how);
  }

  get listener() { return this.#listener; }

  /** Wait until something is there, it has ended, or the time is over. */
  arrival(timeout_s) {
    if (this.#queue.length > 0 || this.state === "ended") return undefined;
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, timeout_s * 1000);
      this.#arrived.add(() => { clearTimeout(timer); resolve(); });
    });
  }

  taken() {
    if (this.#queue.length === 0 && this.error) throw this.error;
    return this.#queue.splice(0).map(([item]) => item);
  }

  async next() {
    if (this.#queue.length > 0) return { value: this.#queue.shift()[0], done: false };
    if (this.error) throw this.error;
    if (this.state === "ended") return { value: undefined, done: true };
    return new Promise((resolve, reject) => { this.#waiting.push({ resolve, reject }); });
  }

  [Symbol.asyncIterator]() { return this; }
}

/** Call a function of the user's: what it throws is theirs to see, and keeps nothing else from arriving. */
export function safely(listener, ...values) {
  try {
    listener(...values);
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

/** A stored question: `past`, what had happened; then what happens, by iteration or `onevent`. */
export class Subscription extends Stream {
  #channel;
  #live;
  #after;
  #retractions;

  constructor(channel, live, id, { after, retractions }) {
    super();
    this.#channel = channel;
    this.#live = live;
    this.id = id;
    this.past = [];
    this.#after = after;
    this.#retractions = retractions;
  }

  /** Called with each event and how it came: "live", "missed" (while there was no connection), "retracted". */
  get onevent() { return this.listener; }

  set onevent(listener) { this.listen(listener); }

  /** The token of the last event that arrived here: what `Channel.resume` goes on after. */
  get token() { return this.#after ?? null; }

  /** What arrived since the last take; asks the server first. `timeout_s`: how long to wait for something. */
  async take(options = {}) {
    for (const name of Object.keys(options)) {
      if (name !== "timeout_s") throw new InvalidRequest(`take has no option ${name}: did you mean timeout_s, in seconds?`);
    }
    const { timeout_s = 0 } = options;
    if (this.state !== "ended") await this.#live.sync();
    if (timeout_s > 0) await this.arrival(timeout_s);
    return this.taken();
  }

  async prolong(window) { this.until = (await this.#channel.prolong(this.id, window)).until; }

  /** Watch another place from now on; what is valid there has arrived when this resolves. */
  async move(place) {
    this.place = (await this.#channel.move(this.id, place)).place;
    await this.#live.sync();
  }

  /** End the subscription. Cancelling one that has ended is allowed. */
  cancel() { return this.#live.finish(this, "cancel"); }

  /** Stop following. The subscription stays stored: `Channel.resume` takes it up again. */
  release() { return this.#live.finish(this, "release"); }

  /** Not found: it expired or was cancelled while there was no connection. */
  refuse(error) {
    if (error instanceof NotFound) this.end("expired");
    else super.refuse(error);
  }

  request() {
    const [id, after, retractions] = [this.id, this.#after, this.#retractions];
    return { do: "resume", channel: this.#channel.name, id, after, retractions };
  }

  hear({ subscribed, event, kind, past_done }) {
    if (subscribed) {
      const { id, user, place, since, until, where, unseen, duplicate } = subscribed;
      Object.assign(this, { id, user, place, since, until, where, unseen, duplicate });
    } else if (event) {
      this.#after = event.token;
      if (this.state === "opening") this.past.push(event);
      else this.deliver(event, this.state === "resuming" && kind === "past" ? "missed" : kind);
    }
    return past_done;
  }
}

/** Every write to a collection, in order: `{seq, key, before?, after}`. */
export class Changes extends Stream {
  #collection;
  #live;
  #options;

  constructor(collection, live, { after, ...options }) {
    super();
    this.#collection = collection;
    this.#live = live;
    this.#options = options;
    /** The seq of the last change that arrived here, or of where it began. */
    this.seq = after;
    /** Resolves when it follows, to the seq it began after: what is written from then on comes. */
    this.ready = collection.make().then(() => live.follow(this)).then(() => this.seq);
    this.ready.catch((error) => this.end("refused", error));
  }

  /** Called with each change. */
  get onchange() { return this.listener; }

  set onchange(listener) { this.listen(listener); }

  /** End it. Leaving a `for await` does so too. */
  async cancel() {
    await this.ready.catch(() => {});
    await this.#live.finish(this, "cancel");
  }

  async return() {
    await this.cancel();
    return { value: undefined, done: true };
  }

  request() {
    return { do: "changes", collection: this.#collection.name, after: this.seq, ...this.#options };
  }

  hear({ following, changes }) {
    if (following) {
      this.seq = Math.max(this.seq ?? 0, following.seq); // it moves on past what a token may not see
      this.#options.identity = following.identity; // of another collection of this name nothing is told
    }
    for (const change of changes ?? []) {
      this.seq = change.seq;
      this.deliver(change, "live");
    }
    return following;
  }
}
