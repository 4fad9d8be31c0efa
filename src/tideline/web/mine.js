// The reader's own subscriptions and their answers: cards, the plug, the list, and what is spoken.

import { clockTime, element, seconds, setText } from "./dom.js";
import { middle, summary } from "./places.js";

const KEPT = 300; // answers in the list; the counts go on
const SPEAK_EVERY_MS = 900;

export class Mine {
  /** parts: {cards, hint, plug, list, count, spoken}, elements. */
  constructor(live, stage, parts) {
    Object.assign(this, { live, stage, parts });
    this.cards = new Map(); // asked -> {card, what, state, bar, prolong, end}
    this.total = 0;
    this.unspoken = [];
    parts.plug.addEventListener("click", () => (live.plugged ? live.unplug() : live.plug()));
    setInterval(() => this.update(), 500);
    setInterval(() => this.#speak(), SPEAK_EVERY_MS);
  }

  /** Bring the cards up to what `live` holds. */
  update() {
    const { live, parts } = this;
    for (const [asked, { card }] of this.cards) {
      if (live.asked.has(asked)) continue;
      card.remove();
      this.cards.delete(asked);
    }
    for (const asked of live.asked) this.#updateCard(asked);
    const open = [...live.asked].filter(({ sub }) => sub.state !== "ended");
    parts.hint.hidden = live.asked.size > 0;
    parts.plug.disabled = live.plugged && open.length === 0;
    parts.plug.setAttribute("aria-pressed", String(!live.plugged));
    setText(parts.plug, live.plugged ? "Pull the plug" : "Plug in again");
    this.#updateStage(open);
  }

  /** An answer has arrived. how: "past", "live" or "missed". */
  add({ label, sub }, event, how) {
    const { parts, stage } = this;
    const row = element("li", { class: "new", "data-event": event.id, "data-how": how },
      element("span", { class: "tag", "data-how": how }, how),
      element("span", { class: "text", title: JSON.stringify(event.body) }, summary(event.body)),
      element("time", { class: "when", datetime: event.at, title: `for subscription ${label}` }, clockTime(event.at)));
    parts.list.querySelector(".none")?.remove();
    parts.list.prepend(row);
    while (parts.list.childElementCount > KEPT) parts.list.lastElementChild.remove();
    this.total += 1;
    setText(parts.count, this.total === 1 ? "1 so far" : `${this.total.toLocaleString("en-US")} so far`);
    this.unspoken.push([how, summary(event.body)]);
    // The line of a live answer is drawn from the feed; a past or missed one of ours is known first here.
    const place = middle(event.place, stage.cells);
    if (!place) return;
    if (!stage.events.get(event.id)) stage.tellEvent(event.id, place, seconds(event.until), false);
    if (how !== "live") stage.tellAnswer(sub.id, event.id, true);
  }

  #updateCard(asked) {
    const parts = this.cards.get(asked) ?? this.#makeCard(asked);
    const { past, live, missed, twice, sub } = asked;
    const { state } = sub;
    parts.card.dataset.state = state;
    const left = Math.max(seconds(sub.until) - this.stage.now, 0);
    const whole = Math.max(seconds(sub.until) - asked.at, 1);
    parts.bar.style.transform = `scaleX(${state === "ended" ? 0 : Math.min(left / whole, 1)})`;
    const counts = [`${past} past`, `${live} live`];
    if (missed) counts.push(`${missed} missed and caught up`);
    if (twice) counts.push(`${twice} twice`);
    const ends = { ended: `ended: ${sub.reason}`, away: "not connected", resuming: "catching up" }[state]
      ?? `${duration(left)} left`;
    setText(parts.state, `${ends} · ${counts.join(" · ")}`);
    parts.state.title = parts.state.textContent;
    const over = state === "ended";
    parts.prolong.disabled = parts.end.disabled = state === "away";
    parts.prolong.hidden = over;
    setText(parts.end, over ? "Dismiss" : "Cancel");
  }

  #makeCard(asked) {
    const { live } = this;
    const { label, sub } = asked;
    asked.at = this.stage.now;
    const { where } = sub;
    const [, , metres] = sub.place.circle;
    const text = `${(metres / 1000).toFixed(metres < 10_000 ? 1 : 0)} km${where ? `, ${JSON.stringify(where)}` : ", all"}`;
    const fail = (error) => live.on.note(error.message);
    const made = {
      what: element("span", { class: "what", title: text }, text),
      state: element("p", { class: "fine" }),
      bar: element("i"),
      prolong: element("button", {
        type: "button", title: "Move the end of the window to ten minutes from now",
        click: () => live.prolong(asked, 600).then(() => { asked.at = this.stage.now; }, fail),
      }, "+ 10 min"),
      end: element("button", {
        type: "button",
        click: () => (sub.state === "ended" ? live.dismiss(asked) : sub.cancel().catch(fail)),
      }, "Cancel"),
    };
    made.card = element("li", { class: "card", "data-id": sub.id },
      element("div", { class: "line" }, element("span", { class: "label" }, label), made.what, made.prolong, made.end),
      element("div", { class: "window" }, made.bar),
      made.state);
    this.cards.set(asked, made);
    this.parts.cards.prepend(made.card);
    return made;
  }

  #updateStage(open) {
    const { mine } = this.stage;
    const before = [...mine.entries()].map(([id, { faint }]) => `${id}${faint}`).join();
    mine.clear();
    for (const { label, sub } of open) {
      const [lon, lat, metres] = sub.place.circle;
      mine.set(sub.id, { lon, lat, metres, label, faint: sub.state === "away" });
    }
    if (before !== [...mine.entries()].map(([id, { faint }]) => `${id}${faint}`).join()) this.stage.touch();
  }

  /** Read out what came since the last time: one answer in words, many as a count. */
  #speak() {
    const { unspoken } = this;
    if (unspoken.length === 0) return;
    const [how, text] = unspoken[unspoken.length - 1];
    this.parts.spoken.textContent = unspoken.length === 1 ? `${how} answer: ${text}` : `${unspoken.length} answers, the newest ${how}: ${text}`;
    this.unspoken = [];
  }
}

function duration(left) {
  if (left === Infinity) return "no end";
  return left >= 90 ? `${Math.round(left / 60)} min` : `${Math.ceil(left)} s`;
}
