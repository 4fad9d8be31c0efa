// Puts the page together: five views, each made when it is first shown.
//
//   map     feed (/v1/watch)  -->  stage (map), figures          what the whole channel does
//           live (/v1/live)   -->  mine (cards, answers)         what the reader asked for
//           inspector         -->  REST and live                 what the reader does
//           search.js         -->  watch                         where the reader looks
//           tour.js                                              where to begin, of a server that has something to show
//   tables  tables.js                                            what the reader watches
//   windows windows.js, road.js                                  stream windows, an expressway
//   store   store.js, picture.js                                 what the database does and is made of
//   access  grants.js                                            who may use it
//
// Nothing on the page is made up: a place, a count or a time is the server's, or the reader's own.

import { Unavailable, connect } from "../tideline.js"; // as it is served, beside the page
import { askAgain, token } from "./access.js";
import { Chart, short } from "./charts.js";
import { byId, element, seconds, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { Pointer } from "./pointer.js";
import { Inspector } from "./inspector.js";
import { Live } from "./live.js";
import { Mine } from "./mine.js";
import { coordinates, middle, nearestTown } from "./places.js";
import { Search } from "./search.js";
import { Stage } from "./stage.js";
import { Store } from "./store.js";
import { Tables } from "./tables.js";
import { Tokens } from "./grants.js";
import { Tour } from "./tour.js";
import { Views } from "./views.js";
import { Windows } from "./windows.js";

const BANNER_AFTER_MS = 1500; // a short loss is mended before anybody needs to know
const PATIENCE_S = 20; // for an answer of the server
const KNOWN_EVENTS = 5000; // fetched at the start
const KNOWN_SUBSCRIPTIONS = 20_000; // the list comes in parts, about 250 bytes each

const NEW_YORK = { space: { kind: "quadtree", bounds: [-79.8, 40.4, -71.8, 45.1], depth: 9 }, journal_s: 60 };

const load = async (name) => (await fetch(`assets/${name}`)).json();

const views = new Views();

function start() {
  theme();
  views.add("map", () => {
    const view = { feed: null, stage: null };
    startMap(view);
    return {
      show: () => { view.stage?.show(true); view.feed?.socket.open(); },
      hide: () => { view.stage?.show(false); view.feed?.socket.shut(); },
    };
  });
  views.add("tables", () => new Tables((state) => views.connection("tables", state)));
  views.add("windows", () => new Windows((state) => views.connection("windows", state)));
  views.add("store", () => new Store((state) => views.connection("store", state)));
  views.add("access", () => new Tokens((state) => views.connection("access", state)));
  views.start();
}

async function startMap(view) {
  const db = connect(undefined, { token, timeout_s: PATIENCE_S });
  const [land, roads, city] = await Promise.all([load("land.json"), load("roads.json"), load("city.json")]);
  const { name, space } = await chooseChannel(db);
  const channel = db.channel(name);
  const stage = new Stage(byId("map"), space, land, roads, city);
  stage.show(views.isShown("map"));
  document.addEventListener("tideline:theme", () => stage.recolour());
  stage.onFrames = (perSecond, longestMs) => {
    setText(byId("frames"), `${Math.round(perSecond)} frames/s`);
    byId("frames").title = `${stage.drivers.count} subscriptions on the map; longest frame of the last second ${Math.round(longestMs)} ms`;
  };

  let mine;
  const live = new Live(db, channel, {
    changed: () => mine?.update(),
    answer: (...answer) => mine.add(...answer),
    note,
  });
  mine = new Mine(live, stage, {
    cards: byId("mine"), hint: byId("mine-hint"), plug: byId("plug"), list: byId("answers"),
    count: byId("answers-count"), spoken: byId("spoken"),
  });
  const inspector = new Inspector(channel, stage, live, user(), note);
  const pointer = new Pointer(stage, byId("map"), {
    act: (lon, lat) => inspector.act(lon, lat),
    circle: (lon, lat, metres) => inspector.subscribe(lon, lat, metres),
    drawing: (metres) => { byId("radius").value = (metres / 1000).toFixed(1); },
    point: (lon, lat) => readout(stage, roads, lon, lat),
  });
  inspector.onTool = (tool) => pointer.use(tool);
  inspector.use("look");
  byId("zoom-in").addEventListener("click", () => pointer.zoom(1.6));
  byId("zoom-out").addEventListener("click", () => pointer.zoom(1 / 1.6));
  byId("zoom-fit").addEventListener("click", () => stage.view.fit());
  byId("map").addEventListener("keydown", ({ key }) => {
    const tool = { l: "look", p: "publish", s: "subscribe" }[key];
    if (tool) inspector.use(tool);
  });

  const tour = new Tour(stage, live, user());
  const feed = new Feed(db, name, stage, {
    start: (where) => tour.begin(where),
    happened: (event, place) => tour.happened(event, place),
    state: connection,
    second: figures(),
    sampled: (is) => { byId("sampled").dataset.on = String(is); },
    status: (text) => {
      setText(byId("said"), text);
      byId("said").title = text; // a long one is cut off: it must not hide the map
      byId("said").hidden = text === "";
    },
    refused: note,
    restarted: () => known(channel, stage),
  });
  Object.assign(view, { feed, stage });
  new Search(db, stage).begin();
  if (views.isShown("map")) feed.socket.open(); // else when it is shown
  byId("banner-retry").addEventListener("click", () => {
    byId("banner").hidden = true;
    feed.socket.retry();
    live.retry();
  });
}

/** What is valid and open already, so that the map does not start empty. Where there are very many
 *  subscriptions, those show that are made from now on. */
async function known(channel, stage) {
  try {
    const { subscriptions: count } = await channel.stats();
    if (count <= KNOWN_SUBSCRIPTIONS) {
      const subscriptions = await channel.subscriptions().catch(hideForbidden);
      subscriptions.sort((a, b) => seconds(a.until) - seconds(b.until) || 0); // a driver's last question last
      for (const subscription of subscriptions) {
        const where = middle(subscription.place, stage.cells);
        if (where) stage.tellSubscription(subscription, where, seconds(subscription.until));
      }
    }
    const events = await channel.find({ box: stage.view.bounds }, { limit: KNOWN_EVENTS });
    for (const event of events) {
      const where = middle(event.place, stage.cells);
      if (where) stage.tellEvent(event.id, where, seconds(event.until), false);
    }
  } catch (error) {
    note(error.message);
  }
}

/** A token that only reads may watch, and not list. */
function hideForbidden(error) {
  if (error.status !== 403) throw error;
  return [];
}

/** The channel of ?channel=, else the first whose space is on a map; without any, an offer to make one. */
async function chooseChannel(db) {
  for (;;) {
    try {
      const listed = await db.channels();
      const onMap = listed.filter(({ space }) => space.bounds);
      const wanted = new URLSearchParams(location.search).get("channel");
      const chosen = onMap.find(({ name }) => name === wanted) ?? onMap[0];
      const select = byId("channel");
      select.replaceChildren(...onMap.map(({ name }) => element("option", name === chosen.name ? { selected: "" } : {}, name)));
      select.addEventListener("change", () => { location.search = new URLSearchParams({ channel: select.value }); });
      if (chosen) return chosen;
      await offer("This server has no channel with a map.", "Make the channel roads over New York State", () =>
        db.request("PUT", "/v1/channels/roads", { body: NEW_YORK }));
    } catch (error) {
      if (error.status === 401) {
        await offer("This server asks for a token.", "Enter a token", async () => askAgain());
        continue;
      }
      if (error instanceof Unavailable && error.status === 0) connection("waiting", 2);
      else note(error.message);
      await new Promise((resolve) => { setTimeout(resolve, 2000); });
    }
  }
}

/** Say what is missing, with a button that mends it; resolves when it has. */
function offer(text, action, mend) {
  return new Promise((resolve, reject) => {
    connection("idle");
    const button = element("button", {
      type: "button",
      class: "main",
      click: () => mend().then(() => { byId("empty").hidden = true; resolve(); }, reject),
    }, action);
    byId("empty").replaceChildren(text, element("br"), button);
    byId("empty").hidden = false;
  });
}

function readout(stage, roads, lon, lat) {
  const town = nearestTown(lon, lat, roads.towns);
  const cell = stage.view.holds(lon, lat) ? `cell ${stage.cells.name(lon, lat)}` : "outside the channel's bounds";
  setText(byId("readout"), `${coordinates(lon, lat)}${town ? `, near ${town}` : ""} · ${cell}`);
}

function figures() {
  const charts = {
    events: new Chart(byId("chart-events"), byId("top-events"), [{ colour: "--orange" }]),
    subscriptions: new Chart(byId("chart-subscriptions"), byId("top-subscriptions"), [{ colour: "--blue" }]),
    answers: new Chart(byId("chart-answers"), byId("top-answers"), [{ colour: "--orange" }]),
    latency: new Chart(byId("chart-latency"), byId("top-latency"), [{ colour: "--blue" }, { colour: "--soft", dashed: true }]),
  };
  document.addEventListener("tideline:theme", () => Object.values(charts).forEach((chart) => chart.draw()));
  return ({ events, subscriptions, answers, totals, latency }) => {
    for (const [name, value] of Object.entries({ events, subscriptions, answers })) {
      charts[name].add(value);
      setText(byId(`rate-${name}`), short(value < 10 ? Math.round(value * 10) / 10 : Math.round(value)));
    }
    setText(byId("live-events"), short(totals.live_events));
    setText(byId("live-subscriptions"), short(totals.live_subscriptions));
    setText(byId("total-answers"), short(totals.answers));
    charts.latency.add(latency?.p50 ?? null, latency?.p99 ?? null);
    if (!latency) return; // nobody was told over a connection in this second: the last figures stay
    setText(byId("latency-p50"), short(latency.p50));
    setText(byId("latency-p99"), short(latency.p99));
  };
}

let lostTimer = 0;
let mapState = "connecting";

/** The lamp, and after a while the banner. */
function connection(state, pause = 0) {
  mapState = state;
  views.connection("map", state);
  if (state === "open") {
    clearTimeout(lostTimer);
    lostTimer = 0;
    byId("banner").hidden = true;
  } else if (state === "waiting") {
    lostTimer ||= setTimeout(() => {
      if (mapState !== "open" && mapState !== "idle") banner(`The server does not answer. Trying again every ${Math.max(pause, 1)} to 8 s.`, true);
    }, BANNER_AFTER_MS);
  }
}

function banner(text, retry) {
  setText(byId("banner-text"), text);
  byId("banner-retry").hidden = !retry;
  byId("banner").hidden = false;
}

let noteTimer = 0;

/** A short message over the map. */
function note(text) {
  banner(text, false);
  clearTimeout(noteTimer);
  noteTimer = setTimeout(() => {
    if (byId("banner-retry").hidden) byId("banner").hidden = true;
  }, 6000);
}

/** The name under which this tab asks, when the token does not say one. */
function user() {
  let name = sessionStorage.getItem("tideline.user");
  if (!name) {
    name = `page-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
    sessionStorage.setItem("tideline.user", name);
  }
  return name;
}

function theme() {
  const button = byId("theme");
  const show = () => {
    const dark = document.documentElement.dataset.theme === "dark";
    button.setAttribute("aria-pressed", String(dark));
    setText(button, dark ? "Light" : "Dark");
    button.setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
    button.removeAttribute("aria-pressed");
  };
  button.addEventListener("click", () => globalThis.tidelineSwitchTheme());
  document.addEventListener("tideline:theme", show);
  show();
}

start();
