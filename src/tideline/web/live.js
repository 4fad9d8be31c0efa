// The reader's own subscriptions, and what they were answered.
//
// The client (tideline.js) keeps the connection and sees to it that each answer comes once. Here it is
// counted how each came: as `past` (had happened when asked), `live`, or `missed` (happened while the
// connection was away, and arrived on coming back). Tokens grow, so an answer that came again would be
// noticed: it would be counted in `twice`, and shown.

import { Unavailable } from "../tideline.js";

export class Live {
  /** on: {changed(), answer(asked, event, how), note(text)} */
  constructor(db, channel, on) {
    Object.assign(this, { db, channel, on });
    this.asked = new Set(); // {label, sub, past, live, missed, twice}
    this.plugged = true;
    db.onstate = () => on.changed();
  }

  /** Ask; resolves once the server has stored it and its past is shown, throws what the server says. */
  async subscribe(place, options, label) {
    if (!this.plugged) throw new Unavailable("The plug is pulled: plug in again first.");
    const sub = await this.channel.subscribe(place, options);
    this.#follow(sub, label);
    return sub.id;
  }

  /** Take up a stored subscription again, with all that it was answered. */
  async resume(id, label) {
    this.#follow(await this.channel.resume(id), label);
  }

  #follow(sub, label) {
    const asked = { label, sub, last: "", past: 0, live: 0, missed: 0, twice: 0 };
    this.asked.add(asked);
    this.on.changed();
    for (const event of sub.past ?? []) this.#answer(asked, event, "past");
    sub.onevent = (event, how) => this.#answer(asked, event, how);
    sub.onended = (reason, error) => {
      if (error) this.on.note(error.message);
      this.on.changed();
    };
  }

  /** Move the end of a window to so many seconds from now. */
  async prolong({ sub }, seconds) {
    await sub.prolong({ until_s: seconds });
    this.on.changed();
  }

  /** Take an ended subscription off the list. */
  dismiss(asked) {
    this.asked.delete(asked);
    this.on.changed();
  }

  /** Cut the connection, as a tunnel or a dead battery would. The server knows nothing of it. */
  unplug() {
    this.plugged = false;
    this.db.disconnect();
  }

  plug() {
    this.plugged = true;
    this.retry();
    this.on.changed();
  }

  /** Connect now instead of later. */
  retry() {
    if (this.plugged) this.db.reconnect();
  }

  #answer(asked, event, how) {
    if (event.token <= asked.last) asked.twice += 1;
    asked.last = event.token;
    asked[how] += 1;
    this.on.answer(asked, event, how);
  }
}
