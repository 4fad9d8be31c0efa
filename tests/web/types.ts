// What TypeScript must accept of the client, and what it must find wrong.

import { Conflict, Unauthorized, connect } from "tideline";
import type { Change, Event, LiveChange, LiveQuery, Pane, Subscription } from "tideline";

interface Car { id: number; road: string; speed?: number }

const db = connect("http://127.0.0.1:8080", {
  token: async (refused?: Unauthorized) => (refused ? null : "tl_x"),
  timeout_s: 5,
});
const cars = db.collection<Car>("cars", { key: "id", indexes: { road: "lazy" } });
const roads = db.channel<{ kind: string }>("roads");

export async function right(): Promise<number | undefined> {
  const car: Car | null = await cars.get(7);
  const sub: Subscription<{ kind: string }> = await roads.subscribe([-75, 43], { user: "ann", until: new Date() });
  sub.onevent = (event: Event<{ kind: string }>, how) => console.log(event.body.kind, how === "missed");
  for await (const event of sub) console.log(event.body.kind.length);
  for await (const change of cars.changes({ after: 7 })) {
    const told: Change<Car> = change;
    console.log(told.after?.road);
  }
  const live: LiveQuery<Car> = cars.watch({ road: "A1" }, { sort: { speed: -1 }, limit: 10, offset: 2 });
  const leave: () => void = live.subscribe((told, how) => console.log(told[0]?.document?.road, how === "missed"));
  const shown: readonly Car[] = useSyncExternalStore(live.subscribe, live.getSnapshot);
  for await (const change of live) {
    const told: LiveChange<Car> = change;
    console.log(told.fields.speed, told.index, shown.length, leave);
  }
  const [first] = await cars.watchGroups<{ road: string; count: number }>({}, { by: "road", count: true }).ready;
  console.log(first.count);
  for await (const one of cars.findIter({ speed: { $gt: 3 } }, { sort: { speed: -1 } })) console.log(one.road);
  const [{ n }] = await cars.aggregate<{ n: number }>([{ $count: "n" }]);
  const reports = db.window<{ seg: number; vel: number }>("reports", { span_s: 60, key: ["seg"], values: { vel: "int32" } });
  const { late } = await reports.append({ seg: 1, vel: 50 }, { once: ["loader", 1] });
  const mean: number | null = await reports.range([1], { map: "mean(vel)", last_s: 60 });
  const [row] = await reports.range([[1], null], { closed: true });
  console.log(late, mean, row.seg + row.vel, row.since.length);
  for await (const pane of reports.watch<number>(null, { map: "count()" })) {
    const told: Pane<number> = pane;
    console.log(told.value + told.missed);
  }
  reports.watch<number>([1], { map: "count()", where: { vel: { $lt: 20 } }, newest: true }).onpane = ({ value }) => console.log(value);
  try {
    await cars.replace(7, { road: "A1" }, { if_version: 3 });
  } catch (error) {
    if (error instanceof Conflict) return error.status + n;
  }
  return car?.speed;
}

/** As React declares it. */
declare function useSyncExternalStore<S>(subscribe: (changed: () => void) => () => void, getSnapshot: () => S): S;

export async function wrong(): Promise<void> {
  // @ts-expect-error: no such field
  await cars.put({ id: 1, road: "A1", sped: 3 });
  // @ts-expect-error: an option that is misspelled
  await roads.publish("a", { kind: "jam" }, { tl_s: 3 });
  // @ts-expect-error: a body of another type
  await roads.publish("a", { what: "jam" });
  // @ts-expect-error: a verb of the wire's spelling
  await cars.find_one({});
  // @ts-expect-error: `find` has skip, a live query has an offset
  cars.watch({}, { skip: 3 });
  // @ts-expect-error: groups are by something
  cars.watchGroups({}, { count: true });
  // @ts-expect-error: a result is not written to
  cars.watch().result.push({ id: 1, road: "A1" });
  // @ts-expect-error: no such type of numbers
  db.window("cars", { span_s: 60, key: "vid", values: { vel: "int" } });
  // @ts-expect-error: what is watched has a map
  db.window("cars").watch([1], {});
  // @ts-expect-error: no such kind of index
  await cars.createIndex("road", { kind: "lasy" });
}
