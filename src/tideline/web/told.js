// Who was told of an event, as far as this page heard of it: for the events of the last minutes.
//
// The feed lists answers of channels with a journal, and a sample of them when there are very many: so the
// counts here are at least what there was while somebody watched.

const EVENTS = 2000; // beyond that the oldest are forgotten
const NAMES = 8;

export class Told {
  #told = new Map(); // event -> {count, names}

  add(event, name) {
    let told = this.#told.get(event);
    if (!told) {
      told = { count: 0, names: [] };
      this.#told.set(event, told);
      if (this.#told.size > EVENTS) this.#told.delete(this.#told.keys().next().value);
    }
    told.count += 1;
    if (name !== undefined && told.names.length < NAMES && !told.names.includes(name)) told.names.push(name);
  }

  /** {count, names} of an event. */
  of(event) { return this.#told.get(event) ?? { count: 0, names: [] }; }

  /** In words: "3 told: ann, bob, you". */
  text(event) {
    const { count, names } = this.of(event);
    if (count === 0) return "nobody was told while this page watched";
    return `${count} told${names.length ? `: ${names.join(", ")}${count > names.length ? " and others" : ""}` : ""}`;
  }
}
