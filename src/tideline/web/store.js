// The view "Store": what the database is doing, how big it is, what it is made of. For whoever asks why it is slow.
//
//   GET /v1/store, once a second                 figures, what stands out, the list, seals and merges
//   GET /v1/{kind}s/NAME/components, as often    of the one that is chosen: picture.js
//
// Rates are differences of the server's own counts.

import { Chart, bytes, duration, short } from "./charts.js";
import { byId, element, setText } from "./dom.js";
import { Looking } from "./looking.js";
import { Picture } from "./picture.js";

const EVERY_MS = 1000;
const LISTED = 200; // channels, collections and windows; those that hold most
const DEEDS = 30;

export const KINDS = { channel: "channels", collection: "collections", window: "windows" };
const keyOf = ({ kind, name }) => `${kind} ${name}`;
const sum = (list, field) => list.reduce((total, each) => total + each[field], 0);
const held = (each) => each.bytes_memory + each.bytes_disk + each.bytes_log;

export class Store extends Looking {
  #before = null; // the last answer, for rates
  #chosen = null; // {kind, name}
  #rows = new Map(); // key -> {row, button, cells}
  #deeds = new Set(); // those that are listed, so that a new one can be marked
  #charts;
  #picture = new Picture(byId("store-picture"), byId("store-component"));

  constructor(onstate) {
    super("store", onstate, EVERY_MS);
    const chart = (name, colour, text) => new Chart(byId(`chart-store-${name}`), byId(`top-store-${name}`), [{ colour }], text);
    this.#charts = {
      memory: chart("memory", "--blue", bytes), written: chart("written", "--orange", bytes),
      requests: chart("requests", "--blue"), cpu: chart("cpu", "--orange"),
    };
    document.addEventListener("tideline:theme", () => Object.values(this.#charts).forEach((each) => each.draw()));
    this.look();
  }

  async ask(stands) {
    const store = await this.db.request("GET", "/v1/store");
    if (!stands()) return;
    this.#show(store);
    const inside = this.#chosen && await this.#inside(this.#chosen);
    if (!stands()) return;
    if (inside) this.#picture.show(inside, Date.parse(store.at));
    byId("store-inside").hidden = !inside;
    this.onstate("open");
  }

  /** The chosen one from inside, with its own statistics; null when it is gone. */
  async #inside({ kind, name }) {
    const route = `/v1/${KINDS[kind]}/${encodeURIComponent(name)}`;
    try {
      const [inside, described] = await Promise.all([
        this.db.request("GET", `${route}/components`), this.db.request("GET", route),
      ]);
      return { ...inside, described };
    } catch (error) {
      if (error.status !== 404) throw error;
      this.#chosen = null; // dropped meanwhile: the next look chooses another one
      return null;
    }
  }

  #show(store) {
    const { datasets, process } = store;
    this.say(datasets.length || process ? "" : "This token may read nothing that the store holds in full.");
    byId("store-all").hidden = datasets.length === 0 && !process;
    this.#figures(store);
    this.#standsOut(store);
    this.#list(datasets);
    this.#listDeeds([...datasets.flatMap(({ doing }) => doing), ...store.done].slice(0, DEEDS));
    this.#before = { store, at: performance.now() };
  }

  // ---- figures ------------------------------------------------------------------------------------

  #figures({ datasets, process, version, durability, in_memory: inMemory }) {
    const memory = sum(datasets, "bytes_memory");
    const rate = this.#rates({ datasets, process });
    setText(byId("store-memory"), bytes(memory));
    setText(byId("store-limit"), process ? `of ${bytes(process.memory_limit_bytes)}` : "in memories");
    setText(byId("store-written"), bytes(rate.written));
    setText(byId("store-disk"), `${bytes(sum(datasets, "bytes_disk"))} in ${short(sum(datasets, "components"))} components`);
    setText(byId("store-requests"), process ? short(rate.requests) : "–");
    setText(byId("store-delivered"), process ? `${short(rate.delivered)} live answers` : "needs the scope read");
    setText(byId("store-cpu"), process && rate.cpu !== null ? `${Math.round(rate.cpu)} %` : "–");
    setText(byId("store-process"), process ? `${bytes(process.bytes_resident)} · ${process.threads} threads` : "needs the scope read");
    if (this.#before) {
      this.#charts.memory.add(memory);
      this.#charts.written.add(rate.written);
      this.#charts.requests.add(rate.requests);
      this.#charts.cpu.add(rate.cpu);
    }
    const facts = [
      ["Log", `${bytes(sum(datasets, "bytes_log"))}, ${bytes(sum(datasets, "bytes_recovery"))} read at a start`],
      ["Durability", inMemory ? "none: a database in memory" : durability],
      ...(process ? [
        ["Disk free", bytes(process.disk_free_bytes)], ["Connections", short(process.connections)],
        ["Messages waiting", short(process.messages_waiting)], ["Slow readers", short(process.slow_readers)],
        ["Refused requests", short(process.refused)], ["Open files", `${process.open_files ?? "–"} of ${short(process.most_files)}`],
        ["Running for", duration(process.uptime_s)],
      ] : []),
      ["Version", version],
    ];
    const list = byId("store-facts");
    if (list.childElementCount !== facts.length) {
      list.replaceChildren(...facts.map(() => element("div", {}, element("dt"), element("dd"))));
    }
    facts.forEach(([name, value], at) => {
      setText(list.children[at].children[0], name);
      setText(list.children[at].children[1], value);
    });
  }

  /** What there was of it a second since the last look; null at the first. */
  #rates({ datasets, process }) {
    if (!this.#before) return { written: null, requests: null, delivered: null, cpu: null };
    const { store, at } = this.#before;
    const seconds = (performance.now() - at) / 1000;
    const known = new Map(store.datasets.map((each) => [keyOf(each), each.written_bytes]));
    const written = datasets.reduce((total, each) => {
      const before = known.get(keyOf(each));
      return total + (before === undefined ? 0 : Math.max(each.written_bytes - before, 0));
    }, 0);
    const of = (field) => (process && store.process ? Math.max(process[field] - store.process[field], 0) / seconds : null);
    const cpu = of("cpu_s");
    return { written: written / seconds, requests: rounded(of("requests")), delivered: rounded(of("delivered")), cpu: cpu === null ? null : cpu * 100 };
  }

  /** What may be why it is slow, or soon will be, in words; each with what to do. */
  #standsOut({ datasets, process }) {
    const said = [];
    for (const { name, waiting, doing, bytes_recovery: recovery } of datasets) {
      if (waiting > 1) said.push(`${waiting} memories of ${name} wait to be sealed: writes come faster than the disk takes them.`);
      for (const { what, trees, took_s: took } of doing) {
        if (took > 10) said.push(`A ${what} of ${trees.join(", ") || name} in ${name} has run for ${duration(took)}.`);
      }
      if (recovery > 512e6) said.push(`A start would read ${bytes(recovery)} of the log of ${name}.`);
    }
    if (process) {
      const memory = sum(datasets, "bytes_memory");
      if (memory > process.memory_limit_bytes * 0.6) said.push("Memories have over 60 % of their limit: they are sealed early. More: --memory-mb.");
      if (process.disk_free_bytes < 1e9) said.push(`Only ${bytes(process.disk_free_bytes)} of the disk are free: writes stop when it is full.`);
      if (process.open_files > process.most_files * 0.8) said.push("Over 80 % of the files this process may open are open: raise ulimit -n.");
      if (process.messages_waiting > 1000) said.push(`${short(process.messages_waiting)} messages wait for readers who are slow to take them.`);
    }
    const list = byId("store-stands-out");
    const texts = said.length ? said.slice(0, 8) : ["Nothing stands out."];
    if ([...list.children].map(({ textContent }) => textContent).join("\n") === texts.join("\n")) return;
    list.replaceChildren(...texts.map((text) => element("li", said.length ? { class: "warn" } : {}, text)));
  }

  // ---- the list -----------------------------------------------------------------------------------

  #list(datasets) {
    const listed = [...datasets].sort((a, b) => held(b) - held(a)).slice(0, LISTED);
    const chosen = this.#chosen && datasets.some((each) => keyOf(each) === keyOf(this.#chosen));
    if (!chosen) this.#chosen = listed[0] ?? null;
    // By kind and name, so that rows stay where they are while figures change.
    listed.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
    const body = byId("store-rows");
    const keys = new Set(listed.map(keyOf));
    for (const [key, { row }] of this.#rows) {
      if (keys.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    listed.forEach((each, at) => {
      const { row, button, cells } = this.#rows.get(keyOf(each)) ?? this.#makeRow(each);
      if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
      button.setAttribute("aria-pressed", String(keyOf(each) === keyOf(this.#chosen)));
      const now = each.doing.map(({ what }) => what).join(", ") || (each.waiting ? "waits" : "");
      [each.kind, bytes(each.bytes_memory), bytes(each.bytes_disk), bytes(each.bytes_log), short(each.components),
        `${short(each.seals)} / ${short(each.merges)}`, now].forEach((text, i) => setText(cells[i], text));
    });
    const left = datasets.length - listed.length;
    setText(byId("store-more"), left > 0 ? `and ${left} more that hold less` : datasets.length ? "" : "Nothing is stored yet.");
  }

  #makeRow({ kind, name }) {
    const button = element("button", { type: "button", click: () => this.#choose({ kind, name }) }, name);
    const cells = ["Kind", "Memory", "Disk", "Log", "Components", "Seals / merges", "Now"].map((label) => element("td", { "data-label": label }));
    const made = { row: element("tr", {}, element("th", { scope: "row" }, button), ...cells), button, cells };
    this.#rows.set(keyOf({ kind, name }), made);
    return made;
  }

  #choose(chosen) {
    this.#chosen = chosen;
    for (const [key, { button }] of this.#rows) button.setAttribute("aria-pressed", String(key === keyOf(chosen)));
    this.look();
  }

  // ---- seals and merges ---------------------------------------------------------------------------

  #listDeeds(deeds) {
    const list = byId("store-deeds");
    const first = this.#deeds.size === 0;
    const keys = new Set();
    list.replaceChildren(...deeds.map((deed) => {
      const key = `${keyOf({ kind: deed.kind, name: deed.dataset })} ${deed.number}`;
      keys.add(key);
      const fresh = deed.number > 0 && !first && !this.#deeds.has(key);
      return element("li", { ...(fresh ? { class: "new" } : {}), ...(deed.number ? {} : { "data-now": "" }) },
        element("span", { class: "tag" }, deed.what),
        element("span", { class: "text" }, `${deed.trees.length > 2 ? `${deed.trees.length} indexes` : deed.trees.join(", ") || "memory"} of ${deed.dataset}`),
        element("span", { class: "when" }, deed.number ? `${duration(deed.ago_s)} ago` : `for ${duration(deed.took_s)}`),
        element("span", { class: "fine" }, done(deed)));
    }));
    if (!deeds.length) list.replaceChildren(element("li", { class: "hint" }, "None since the server started: everything is in memory and in the log."));
    this.#deeds = keys.size ? keys : new Set(["none"]);
  }
}

/** What a seal or merge did, in a few words. */
function done({ number, what, inputs, bytes_in: bytesIn, components, rows, size_bytes: size, level, took_s: took }) {
  if (!number) return inputs ? `${inputs} components, ${bytes(bytesIn)}` : "being written";
  const from = what === "merge" ? `${inputs} components, ${bytes(bytesIn)} → ` : "";
  const to = level ? `, level ${level}` : "";
  return `${from}${components} component${components === 1 ? "" : "s"}, ${short(rows)} rows, ${bytes(size)}${to}, in ${duration(took)}`;
}

const rounded = (rate) => (rate === null ? null : rate < 10 ? Math.round(rate * 10) / 10 : Math.round(rate));
