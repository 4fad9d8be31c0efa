// Types of the JavaScript client. docs/guide/javascript.md explains every verb.
//
// A method is the verb of the wire in camelCase; options and the fields of what comes back keep the names
// that they have there. Seconds count from the server's now.

/** ISO 8601 text when it comes from the server; a Date may be given too. */
export type Time = string | Date;

export type JsonValue = string | number | boolean | null | JsonValue[] | { [name: string]: JsonValue };

/** A document of a collection: a JSON object. */
export type Document = { [field: string]: any };
export type Key = string | number;
/** A condition in MongoDB's words: `{ severity: { $gte: 3 } }`. */
export type Where = { [field: string]: any };

/** Where an event is or what a subscription watches: a key, a point, a circle, a box, or GeoJSON (a polygon). */
export type Place =
  | string
  | [lon: number, lat: number]
  | { lon: number; lat: number }
  | { circle: [lon: number, lat: number, radius_m: number] }
  | { box: [west: number, south: number, east: number, north: number] }
  | { type: string; coordinates: any; [more: string]: any };

export interface ConnectOptions {
  /** Text, or a function: called for the first token, and with the error when one was refused. */
  token?: string | ((refused?: Unauthorized) => string | null | undefined | Promise<string | null | undefined>);
  /** How long a call waits for its answer, new connections included. 30 if not given. */
  timeout_s?: number;
  /** A class as browsers have it; for Node before 22. */
  WebSocket?: any;
}

/**
 * A server. Without an address: the one that this module came from, or else the page's. With several, as an
 * array or with commas between: the nodes of a cluster, of which the leader is found.
 */
export function connect(url?: string | URL | readonly (string | URL)[], options?: ConnectOptions): Database;

export type State = "idle" | "connecting" | "open" | "waiting";

export interface RequestOptions {
  query?: { [name: string]: any };
  body?: any;
  /** Whether it may be made twice. Not for POST, if not said. */
  again?: boolean;
  /** Do not try again when the server cannot be reached. */
  once?: boolean;
  /** Time beside `timeout_s`. */
  longer_s?: number;
}

export class Database {
  private constructor();
  /** The server that is asked now. */
  readonly url: string;
  /** What the live connection does; "idle" until something is followed. */
  readonly state: State;
  onstate: ((state: State, pause_s: number) => void) | null;
  /** A channel; with settings it is made before its first use, if it is not there. */
  channel<Body = any>(name: string, settings?: ChannelSettings): Channel<Body>;
  /** A collection; with settings it is made before its first use, if it is not there. */
  collection<T extends Document = Document>(name: string, settings?: CollectionSettings): Collection<T>;
  /** A stream window; with settings it is made before its first use, if it is not there. */
  window<Row extends object = any>(name: string, settings?: WindowSettings): StreamWindow<Row>;
  channels(): Promise<ChannelInfo[]>;
  collections(): Promise<CollectionInfo[]>;
  windows(): Promise<WindowInfo[]>;
  dropChannel(name: string): Promise<void>;
  dropCollection(name: string): Promise<void>;
  dropWindow(name: string): Promise<void>;
  /** Any other route of the server. */
  request(method: string, route: string, options?: RequestOptions): Promise<any>;
  /** Another WebSocket of the server that comes back by itself. */
  socket(route: string, on: SocketListeners): Socket;
  /** Resolves when all that is followed here has what was written before: to the server's time. */
  sync(): Promise<string>;
  /** Let go of the live connection; what is subscribed to stays so on the server. */
  disconnect(): void;
  /** Connect again, now. */
  reconnect(): void;
  /** End everything that is followed here. What is stored stays stored. */
  close(): void;
}

export interface SocketListeners {
  opened?(): void;
  message?(document: any): void;
  state?(state: State, pause_s: number): void;
  refused?(error: TidelineError): void;
}

export interface Socket {
  readonly state: State;
  open(): void;
  shut(): void;
  retry(): void;
  again(): void;
  send(...documents: any[]): boolean;
}

// ---- channels ---------------------------------------------------------------------------------

export type Space =
  | { kind: "flat" }
  | { kind: "topics" }
  | { kind: "grid"; bounds: [number, number, number, number]; rows: number; cols: number }
  | { kind: "quadtree"; bounds: [number, number, number, number]; depth: number };

export interface ChannelSettings {
  space?: Space;
  layout?: "dual" | "two" | "poll";
  poll_s?: number;
  journal_s?: number;
  max_ahead_s?: number | null;
}

export interface ChannelInfo {
  name: string;
  space: Space;
  layout: string;
  journal_s: number;
  max_ahead_s: number | null;
  identity: string;
  position: string | null;
  earliest: string | null;
  stats: { [name: string]: number };
  [more: string]: any;
}

export interface Event<Body = any> {
  id: string;
  place: Place;
  at: string;
  /** null: it does not expire. */
  until: string | null;
  body: Body;
  /** Its place among the answers of a subscription: `resume` goes on after it. */
  token: string;
  /** It was told before, and is no more. */
  retracted?: boolean;
}

/** A span of time; seconds from now, or times. */
export interface Window {
  since_s?: number;
  since?: Time;
  until_s?: number;
  until?: Time;
}

export interface PublishOptions {
  id?: string;
  at?: Time;
  ttl_s?: number;
  until?: Time;
  related?: boolean;
  /** End the event that has this id, in the same step. */
  replace?: boolean;
}

export interface Told<Body = any> {
  event: Event<Body>;
  subscriptions: { id: string; user: string }[];
  related: Event<Body>[];
  /** It was stored before, and named whom it answered then. */
  duplicate: boolean;
}

export interface SubscribeOptions extends Window {
  /** May be left out with a token that is bound to a user. */
  user?: string;
  id?: string;
  where?: Where;
  /** Leave out what an earlier subscription of this user was answered with. */
  unseen?: boolean;
  /** Be told of events that were told and are retracted, or replaced by one that is not. */
  retractions?: boolean;
}

export interface SubscriptionInfo {
  id: string;
  user: string;
  place: Place;
  since: string | null;
  until: string | null;
  where: Where | null;
  unseen: boolean;
}

export class Channel<Body = any> {
  private constructor();
  readonly name: string;
  publish(place: Place, body: Body, options?: PublishOptions): Promise<Told<Body>>;
  /** Many events; a result for each. */
  publishMany(events: ({ place: Place; body: Body } & PublishOptions)[]):
    Promise<(Told<Body> | { error: { kind: string; message: string } })[]>;
  /** The valid events of a window, newest first. */
  find(place: Place, options?: Window & { where?: Where; limit?: number }): Promise<Event<Body>[]>;
  /** The event with this id, if it is still valid. */
  get(id: string): Promise<Event<Body> | null>;
  subscribe(place: Place, options?: SubscribeOptions): Promise<Subscription<Body>>;
  /** A stored subscription, with what it was answered after a token. */
  resume(id: string, after?: string, options?: { retractions?: boolean }): Promise<Subscription<Body>>;
  /** End an event before its time. */
  retract(id: string): Promise<void>;
  cancel(id: string): Promise<void>;
  move(id: string, place: Place): Promise<SubscriptionInfo>;
  prolong(id: string, window: { until_s?: number; until?: Time }): Promise<SubscriptionInfo>;
  subscription(id: string): Promise<SubscriptionInfo>;
  subscriptions(options?: { user?: string; limit?: number; after?: string }): Promise<SubscriptionInfo[]>;
  info(): Promise<ChannelInfo>;
  stats(): Promise<{ [name: string]: number }>;
}

export type StreamState = "opening" | "open" | "away" | "resuming" | "ended";

interface Followed {
  readonly state: StreamState;
  /** Why it ended; null before. */
  readonly reason: string | null;
  /** What the server refused it with; null when it did not. */
  readonly error: TidelineError | null;
  onended: ((reason: string, error: TidelineError | null) => void) | null;
}

/** What is followed. Iteration ends when it ends, and throws when the server refuses to go on. */
interface Stream<T> extends AsyncIterableIterator<T>, Followed {
  [Symbol.asyncIterator](): this;
  next(): Promise<IteratorResult<T, undefined>>;
}

export interface Subscription<Body = any> extends Stream<Event<Body>> {}
export class Subscription<Body = any> implements SubscriptionInfo {
  private constructor();
  readonly id: string;
  readonly user: string;
  readonly place: Place;
  readonly since: string | null;
  readonly until: string | null;
  readonly where: Where | null;
  readonly unseen: boolean;
  /** It was there already, under this id. */
  readonly duplicate: boolean;
  /** What had happened when it was made. */
  readonly past: Event<Body>[];
  /** That of the last event that arrived. */
  readonly token: string | null;
  /** Called with each event instead of iteration: "live", or "missed" while there was no connection. */
  onevent: ((event: Event<Body>, how: "live" | "missed" | "retracted") => void) | null;
  /** What arrived since the last take; asks the server first. */
  take(options?: { timeout_s?: number }): Promise<Event<Body>[]>;
  prolong(window: { until_s?: number; until?: Time }): Promise<void>;
  /** Watch another place from now on. */
  move(place: Place): Promise<void>;
  /** End it on the server. */
  cancel(): Promise<void>;
  /** Stop following; it stays stored. */
  release(): Promise<void>;
}

// ---- collections ------------------------------------------------------------------------------

export type IndexKind = "eager" | "lazy" | "composite" | "embedded";

/** A kind with its settings. */
export interface IndexSettings { kind?: IndexKind | null; unique?: boolean; [setting: string]: any }

export interface CollectionSettings {
  /** The field that every document is known by. */
  key: string;
  indexes?: { [field: string]: IndexKind | IndexSettings } | string[];
  policy?: { [name: string]: any };
  filter?: string;
  bloom_bits?: number;
  journal_s?: number;
}

export interface CollectionInfo {
  name: string;
  key: string;
  indexes: { [field: string]: string | IndexSettings };
  unique: string[];
  identity: string;
  position: number;
  earliest: number;
  stats: { [name: string]: any };
  [more: string]: any;
}

/** Fields with 1 (up) or -1 (down). */
export type Sort = { [field: string]: 1 | -1 } | [field: string, direction: 1 | -1][];
/** These fields and the key; or `{ text: 0 }` for all but these. */
export type Fields = string[] | { [field: string]: 0 | 1 | boolean };

/** The cells of a grid that have any: cell n is in row `row[n]`, from the south, and column `col[n]`, from the west. */
export interface Cells {
  box: [number, number, number, number];
  rows: number;
  cols: number;
  row: number[];
  col: number[];
  count: number[];
}

export interface FindOptions {
  sort?: Sort;
  limit?: number;
  skip?: number;
  fields?: Fields;
}

export interface PutOptions {
  /** Gone by itself after so many seconds. */
  ttl_s?: number;
}

export interface Stored {
  stored: number;
  /** Why a row was not, by its number. */
  rejected: { [row: string]: string };
}

/** A write: the document before it (if asked for) and after it (null: deleted). */
export interface Change<T extends Document = Document> {
  seq: number;
  key: Key;
  before?: T | null;
  after: T | null;
}

export class Collection<T extends Document = Document> {
  private constructor();
  readonly name: string;
  put(document: T, options?: PutOptions): Promise<null>;
  putMany(documents: T[], options?: PutOptions): Promise<Stored>;
  /** Its version; `Conflict` when there is a document with its key. */
  insert(document: T, options?: PutOptions): Promise<number>;
  insertMany(documents: T[], options?: PutOptions): Promise<Stored>;
  checkMany(documents: T[]): Promise<{ [row: string]: string }>;
  get(key: Key): Promise<T | null>;
  getMany(keys: Key[]): Promise<(T | null)[]>;
  versioned(key: Key): Promise<{ document: T; version: number } | null>;
  /** What the document is now. */
  update(key: Key, change: Document, options?: { upsert?: boolean; if_version?: number }): Promise<T>;
  updateMany(where: Where, change: Document): Promise<{ matched: number; changed: number }>;
  replace(key: Key, document: Document, options?: { if_version?: number }): Promise<number>;
  delete(key: Key, options?: { if_version?: number }): Promise<null>;
  deleteMany(keys: Key[]): Promise<null>;
  deleteWhere(where: Where): Promise<number>;
  find(where?: Where | null, options?: FindOptions): Promise<T[]>;
  /** The same one at a time, fetched in pages. */
  findIter(where?: Where | null, options?: FindOptions & { page?: number }): AsyncGenerator<T, void, undefined>;
  findOne(where?: Where | null, options?: Omit<FindOptions, "limit">): Promise<T | null>;
  count(where?: Where | null): Promise<number>;
  distinct(field: string, where?: Where | null): Promise<any[]>;
  aggregate<R extends Document = Document>(pipeline: Document[]): Promise<R[]>;
  nearest(point: [number, number] | { type: "Point"; coordinates: number[] }, options?: { limit?: number; where?: Where | null;
    field?: string; max_distance_m?: number; min_distance_m?: number; fields?: Fields }):
    Promise<{ document: T; metres: number }[]>;
  aggregateGrid(box: [number, number, number, number],
    options?: { rows?: number; cols?: number; where?: Where | null; field?: string }): Promise<Cells>;
  lookup(field: string, value: string | number | boolean | null, options?: { k?: number }): Promise<T[]>;
  rangeLookup(field: string, low?: string | number | boolean | null, high?: string | number | boolean | null,
    options?: { k?: number }): Promise<T[]>;
  explain(where?: Where | null, options?: { sort?: Sort; limit?: number }): Promise<any>;
  advise(options?: { scarce?: boolean; where?: Where[]; limit?: number }): Promise<any[]>;
  createIndex(field: string | string[], options?: { kind?: IndexKind | IndexSettings; unique?: boolean; wait_s?: number }):
    Promise<{ field: string; kind: string; done: boolean; progress: number }>;
  dropIndex(field: string | string[]): Promise<null>;
  /** What meets a condition, kept up to date. */
  watch(where?: Where | null, options?: WatchOptions): LiveQuery<T>;
  /** Counts and sums of groups, kept up to date. */
  watchGroups<R extends Document = Document>(where: Where | null | undefined, options: GroupOptions): LiveQuery<R>;
  /** How a live query would be kept up to date, and what that costs. */
  explainWatch(where?: Where | null, options?: Omit<WatchOptions, "ttl_s">): Promise<any>;
  /** Every write from now on, or after a seq; `before`: with the old documents. */
  changes(options?: { after?: number; before?: boolean }): Changes<T>;
  info(): Promise<CollectionInfo>;
  stats(): Promise<{ [name: string]: any }>;
}

export interface Changes<T extends Document = Document> extends Stream<Change<T>> {}
export class Changes<T extends Document = Document> {
  private constructor();
  /** Of the last change that arrived, or of where it began. */
  readonly seq: number | undefined;
  /** Resolves when it follows: what is written from then on comes. */
  readonly ready: Promise<number>;
  onchange: ((change: Change<T>) => void) | null;
  /** End it; leaving a `for await` does so too. */
  cancel(): Promise<void>;
  return(): Promise<IteratorResult<Change<T>, undefined>>;
}

export interface WatchOptions {
  sort?: Sort;
  limit?: number;
  offset?: number;
  /** Rows that the server knows beyond the limit; as many as the limit if not given. */
  slack?: number;
  /** It ends after so many seconds, unless it is prolonged. */
  ttl_s?: number;
}

export interface GroupOptions {
  /** The fields that make a group. */
  by: string | string[];
  count?: boolean;
  sum?: string | string[];
  avg?: string | string[];
  min?: string | string[];
  max?: string | string[];
  ttl_s?: number;
}

/** One step of a result. Applied in order, they lead from one result to the next. */
export interface LiveChange<T extends Document = Document> {
  kind: "add" | "change" | "changeIndex" | "remove";
  /** Of the document; of a group, the values of its fields. */
  key: any;
  /** As it is now; null when it was removed. */
  document: T | null;
  before: T | null;
  /** Where it was and where it is; null without sort, limit and offset. */
  old_index: number | null;
  index: number | null;
  version: number;
  /** What of the document is new or different: all of it for "add", nothing for "remove". */
  fields: Partial<T>;
  /** The fields that it had before and has no more. */
  gone: string[];
}

export interface LiveQuery<T extends Document = Document> extends Followed {}
/** A result that is kept up to date. */
export class LiveQuery<T extends Document = Document> implements AsyncIterable<LiveChange<T>> {
  private constructor();
  /** Resolves to the first result. */
  readonly ready: Promise<readonly T[]>;
  /** A new array after each tick; rows that did not change are the same objects. */
  readonly result: readonly T[];
  /** The version of the collection that `result` is of. */
  readonly version: number | null;
  readonly until: string | null;
  /** Whether what was missed was told as a difference: the server did not keep it. */
  readonly wasReset: boolean;
  /** Called after each tick; returns a function that ends this. */
  readonly subscribe: (listener: (changes: LiveChange<T>[], how: "first" | "live" | "missed" | "reset") => void) => () => void;
  readonly getSnapshot: () => readonly T[];
  /** Let it end so many seconds from now; null: not by itself. */
  prolong(options: { ttl_s: number | null }): Promise<void>;
  /** End it. */
  cancel(): Promise<void>;
  [Symbol.asyncIterator](): AsyncIterableIterator<LiveChange<T>>;
}

// ---- stream windows ---------------------------------------------------------------------------

export type NumberType =
  | "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "float32" | "float64";

export interface WindowSettings {
  /** What is kept, in seconds. */
  span_s: number;
  /** In which steps it is forgotten: it divides the span. Without it, the span. */
  slide_s?: number;
  /** The fields rows are found by; or each with its range, its type, or null. */
  key: string | string[] | { [field: string]: [least: number, greatest: number] | "int" | "text" | null };
  values?: { [field: string]: NumberType | "point" | "text" };
  /** The kind of index on each value that is a point or a text, for `find`. */
  indexes?: { [field: string]: "spatial" | "words" | "ngrams" | "fuzzy" | { kind: string; [setting: string]: any } };
  /** Of rows with one key a sub-window keeps the last, or all. "last" if not given. */
  keep?: "last" | "all";
  /** The field that says when a row happened; without it, the clock does. */
  time?: string;
  durable?: boolean;
  max_ahead_s?: number | "never";
}

export interface WindowStats {
  /** Rows in the window. */
  rows: number;
  sub_windows: number;
  components: number;
  bytes_memory: number;
  bytes_disk: number;
  bytes_log: number;
  /** Rows since it was opened. */
  appended: number;
  late: number;
  /** Sub-windows that were let go of. */
  dropped: number;
  watches: number;
  until: string | null;
}

export interface WindowInfo {
  name: string;
  settings: { [name: string]: any };
  stats: WindowStats;
}

export interface AppendedRows {
  stored: number;
  /** Rows that were older than the window. */
  late: number;
  /** Why a row was not stored, by its number. */
  rejected: { [row: string]: string };
  /** The batch had landed before. */
  repeated: boolean;
}

/** A key field, or several: the beginning of a key. */
export type Prefix = string | number | (string | number)[] | { [field: string]: string | number };
/** Keys that begin so, or those in [low, high); null is open. */
export type KeyRange = Prefix | [low: Prefix | null, high: Prefix | null] | null;
/** "mean(vel)", several as a list, or by name. */
export type Mapper = string | string[] | { [name: string]: string };

export interface FindRows {
  /** Among keys that begin so, or lie in [low, high). */
  keys?: KeyRange;
  /** Of each key only its newest row counts. */
  newest?: boolean;
  last_s?: number;
  closed?: boolean;
}

export interface WatchRows {
  map: Mapper;
  /** Only rows that meet this condition. */
  where?: Where | null;
  /** Of each key only its newest row counts. */
  newest?: boolean;
  last_s?: number;
}

export class StreamWindow<Row extends object = any> {
  private constructor();
  readonly name: string;
  append(rows: Row | Row[], options?: { once?: [writer: string, number: number] }): Promise<AppendedRows>;
  /** The newest row of a key, or null; an array of all of them where the window keeps all. */
  get<R = any>(key: Prefix, options?: { last_s?: number }): Promise<R>;
  /** The newest row of each key; `found` says whether there is one. */
  getMany(keys: Prefix[], options?: { last_s?: number }): Promise<(Partial<Row> & { found: boolean })[]>;
  /** The rows, or what `map` makes of them. */
  range<R = any>(keys: KeyRange | undefined, options: { map: Mapper; last_s?: number; closed?: boolean }): Promise<R>;
  range(keys?: KeyRange, options?: { last_s?: number; closed?: boolean }): Promise<(Row & { since: string })[]>;
  /** What `map` makes of the rows that meet a condition. */
  find<R = any>(where: Where | null | undefined, options: FindRows & { map: Mapper }): Promise<R>;
  /** The rows that meet a condition; with a `$near` the nearest first, with `metres`. */
  find(where?: Where | null, options?: FindRows & { limit?: number }): Promise<(Row & { since: string; metres?: number })[]>;
  /** What `range` gives with this map, told at each slide; with `where` or `newest`, what `find` gives. */
  watch<R = any>(keys: KeyRange | undefined, options: WatchRows): Panes<R>;
  info(): Promise<WindowInfo>;
  stats(): Promise<WindowStats>;
}

/** What a window's rows were made into at a slide. */
export interface Pane<R = any> {
  since: string;
  until: string;
  value: R;
  /** How many panes were left out before it. */
  missed: number;
}

export interface Panes<R = any> extends Stream<Pane<R>> {}
export class Panes<R = any> {
  private constructor();
  /** Resolves when it follows: every slide from then on is told. */
  readonly ready: Promise<void>;
  onpane: ((pane: Pane<R>) => void) | null;
  /** End it; leaving a `for await` does so too. */
  cancel(): Promise<void>;
  return(): Promise<IteratorResult<Pane<R>, undefined>>;
}

// ---- errors -----------------------------------------------------------------------------------

/** Base of every error. */
export class TidelineError extends Error {
  /** The server's word, such as "Forbidden"; else the name of the class. */
  readonly kind: string;
  /** That of HTTP; 0 when there was none. */
  readonly status: number;
  /** When to try again, if the server says so. */
  readonly retry_after_s?: number;
  /** What a program may need to go on: `earliest` of changes that are not kept any more. */
  readonly values?: { [name: string]: any };
}
/** The call is wrong: fix it. Nothing was stored. */
export class InvalidRequest extends TidelineError {}
/** There is no good token, or it may not do this. */
export class Unauthorized extends TidelineError {}
/** No such channel, subscription, collection or document. */
export class NotFound extends TidelineError {}
/** It exists with other content. */
export class Conflict extends TidelineError {}
/** Not now: retry later. */
export class Unavailable extends TidelineError {}
/** The connection was closed. */
export class Closed extends TidelineError {}
/** Bytes on the server's disk are damaged. */
export class Corruption extends TidelineError {}
