// The reader's own subscriptions, on one connection to /v1/live.
//
//   subscribing --subscribed--> open --lost or unplugged--> away --resume--> catching up --> open
//                                 \--ended: expired, cancelled, replaced
//
// Every answer carries a token; after a cut the page asks for what came after the last one it has.
// So each answer is shown once: as `past` (had happened when asked), `live`, or `missed` (happened
// while the connection was away, and arrived on coming back). Tokens grow, so an answer that came
// again would be noticed: it would be counted in `twice`, and shown.

import { Refused, Unreachable } from "./api.js";
import { Socket } from "./socket.js";

export class Live {
  /** on: {changed(), answer(subscription, event, how), note(text)} */
  constructor(api, channel, on) {
    Object.assign(this, { channel, on });
    this.subscriptions = new Map(); // tag -> subscription
    this.waiting = new Map(); // "do tag" -> {resolve, reject}
    this.tags = 0;
    this.plugged = true;
    this.socket = new Socket(api, "/v1/live", {}, {
      opened: () => this.#opened(),
      message: (message) => this.#message(message),
      state: (state) => this.#state(state),
      refused: (reason) => this.on.note(reason),
    });
  }

  /** Ask; resolves to the subscription once the server has stored it, throws what the server says. */
  async subscribe(fields, label) {
    await this.#ready();
    const tag = ++this.tags;
    const subscription = {
      tag, label, fields, id: null, user: fields.user, since: null, until: null, token: null, state: "subscribing",
      catching: false, past: 0, live: 0, missed: 0, twice: 0,
    };
    this.subscriptions.set(tag, subscription);
    try {
      const told = await this.#ask("subscribe", tag, { channel: this.channel, ...fields });
      Object.assign(subscription, told, { state: "open" });
      return subscription;
    } catch (error) {
      this.subscriptions.delete(tag);
      throw error;
    } finally {
      this.on.changed();
    }
  }

  /** Move the end of a window to so many seconds from now. */
  async prolong(subscription, seconds) {
    const told = await this.#ask("prolong", subscription.tag, { until_s: seconds });
    subscription.until = told.until ?? subscription.until;
    this.on.changed();
  }

  async cancel(subscription) {
    await this.#ask("cancel", subscription.tag, {});
  }

  /** Take an ended subscription off the list. */
  dismiss(subscription) {
    this.subscriptions.delete(subscription.tag);
    this.on.changed();
  }

  /** Cut the connection, as a tunnel or a dead battery would. The server knows nothing of it. */
  unplug() {
    this.plugged = false;
    this.socket.shut();
  }

  plug() {
    this.plugged = true;
    this.socket.open();
    this.on.changed();
  }

  /** Those the server still keeps for this page. */
  open() {
    return [...this.subscriptions.values()].filter(({ state }) => state !== "ended");
  }

  #opened() {
    for (const subscription of this.open()) {
      if (subscription.id === null) continue;
      subscription.state = "open";
      subscription.catching = true;
      this.socket.send({
        do: "resume", tag: subscription.tag, channel: this.channel, id: subscription.id,
        ...(subscription.token ? { after: subscription.token } : {}),
      });
    }
    this.on.changed();
  }

  #state(state) {
    if (state !== "open") {
      for (const subscription of this.open()) if (subscription.id !== null) subscription.state = "away";
      for (const { reject } of this.waiting.values()) reject(new Unreachable("The connection was lost before the server answered."));
      this.waiting.clear();
    }
    this.on.changed();
  }

  #message(message) {
    if (message.slow) {
      // It resumes after what it has, which is what the server says was sent.
      this.on.note("This page read too slowly, so the server cut the connection. It resumes.");
      return;
    }
    const subscription = this.subscriptions.get(message.tag);
    if (!subscription) return;
    if (message.error) this.#refused(subscription, message.error);
    else if (message.event) this.#answer(subscription, message);
    else if (message.past_done) this.#caughtUp(subscription);
    else if (message.ended) this.#ended(subscription, message.ended);
    else if (message.subscribed || message.prolonged || message.told) this.#settled(subscription, message);
  }

  #answer(subscription, { event, kind, token }) {
    const how = subscription.catching ? "missed" : kind;
    if (subscription.token !== null && token <= subscription.token) subscription.twice += 1;
    subscription.token = token;
    subscription[how] += 1;
    this.on.answer(subscription, event, how);
  }

  #caughtUp(subscription) {
    subscription.catching = false;
    this.on.changed();
  }

  #ended(subscription, why) {
    subscription.state = "ended";
    subscription.why = why;
    this.#settle("cancel", subscription.tag, {});
    this.on.changed();
  }

  #settled(subscription, message) {
    const told = message.subscribed ?? message.prolonged ?? message.told;
    for (const verb of ["subscribe", "prolong", "cancel"]) this.#settle(verb, subscription.tag, told);
    if (told.until !== undefined) subscription.until = told.until;
    this.on.changed();
  }

  #refused(subscription, { kind, message }) {
    const error = new Refused(0, kind, message);
    const asked = ["subscribe", "prolong", "cancel"].find((verb) => this.waiting.has(`${verb} ${subscription.tag}`));
    if (asked) {
      this.waiting.get(`${asked} ${subscription.tag}`).reject(error);
      this.waiting.delete(`${asked} ${subscription.tag}`);
    } else {
      // A resume was refused: the window is over, or somebody cancelled it meanwhile.
      subscription.catching = false;
      this.#ended(subscription, kind === "NotFound" ? "over" : message);
    }
  }

  #ask(verb, tag, fields) {
    return new Promise((resolve, reject) => {
      this.waiting.set(`${verb} ${tag}`, { resolve, reject });
      if (this.socket.send({ do: verb, tag, ...fields })) return;
      this.waiting.delete(`${verb} ${tag}`);
      reject(new Unreachable("There is no connection to the server."));
    });
  }

  #settle(verb, tag, value) {
    this.waiting.get(`${verb} ${tag}`)?.resolve(value);
    this.waiting.delete(`${verb} ${tag}`);
  }

  /** A connection to ask on: opened with the first question, waited for at most 5 s. */
  #ready() {
    if (!this.plugged) throw new Unreachable("The plug is pulled: plug in again first.");
    if (this.socket.state === "open") return Promise.resolve();
    this.socket.open();
    return new Promise((resolve, reject) => {
      const started = performance.now();
      const look = setInterval(() => {
        if (this.socket.state === "open") resolve();
        else if (performance.now() - started > 5000) reject(new Unreachable("The server does not answer."));
        else return;
        clearInterval(look);
      }, 30);
    });
  }
}
