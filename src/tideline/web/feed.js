// What the whole channel does, for the map and the counters: /v1/watch, about ten messages a second,
// made by the server from the channel's journal. A long list is a sample and says of how many (`of`).
//
// Rates are differences of the server's running counts over the server's time, per whole second.

import { seconds } from "./dom.js";
import { middle } from "./places.js";

const GONE = 400; // the channel was dropped; it may be made again
const GONE_MS = 2000;
const SAMPLED_S = 3; // how long the page says so after a message with a sample

export class Feed {
  /** Its socket is opened by whoever shows the map. on: {state(name, pause), second(figures), sampled(yes), status(text), start(where), happened(event, place), restarted(), refused(reason)} */
  constructor(db, channel, stage, on) {
    Object.assign(this, { stage, on });
    this.sampledAt = -Infinity;
    this.start = null; // where the server says to begin
    this.last = null; // {at, counts} of the last whole second
    this.socket = db.socket(`/v1/watch?channel=${encodeURIComponent(channel)}`, {
      opened: () => this.on.restarted(),
      message: (message) => this.#message(message),
      state: (state, pause) => this.on.state(state, pause),
      refused: ({ message, status }) => {
        this.on.refused(message);
        if (status === GONE) setTimeout(() => this.socket.open(), GONE_MS);
      },
    });
  }

  #message(message) {
    if (message.start) this.start = message.start;
    if (message.at === undefined) return; // a beat
    const { stage } = this;
    const at = seconds(message.at);
    stage.setTime(at);
    if (this.start) this.on.start(this.start); // now that the time is known
    this.start = null;
    for (const subscription of message.subscriptions ?? []) {
      const place = middle(subscription.place, stage.cells);
      if (place) stage.tellSubscription(subscription, place, seconds(subscription.until));
    }
    for (const event of message.events ?? []) {
      const place = middle(event.place, stage.cells);
      if (!place) continue;
      stage.tellEvent(event.id, place, seconds(event.until), true);
      this.on.happened(event, place);
    }
    for (const { subscription, event, kind } of message.answers ?? []) {
      stage.tellAnswer(subscription, event, kind === "past");
    }
    for (const id of message.cancelled ?? []) stage.tellCancelled(id);
    for (const id of message.retracted ?? []) stage.tellRetracted(id);
    if (message.of) this.sampledAt = at;
    this.on.sampled(at - this.sampledAt < SAMPLED_S);
    this.on.status(message.status ?? "");
    if (message.counts) this.#figures(at, message);
  }

  #figures(at, { counts, latency_ms }) {
    if (this.last && at - this.last.at < 1) return;
    if (this.last && at > this.last.at) {
      const rate = (name) => Math.max(counts[name] - this.last.counts[name], 0) / (at - this.last.at);
      this.on.second({
        events: rate("events"), subscriptions: rate("subscriptions"), answers: rate("answers"),
        totals: counts, latency: latency_ms,
      });
    }
    this.last = { at, counts };
  }
}
