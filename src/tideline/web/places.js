// Places as the server writes them: [lon, lat], {circle: [lon, lat, metres]}, {box: [w, s, e, n]}, a polygon
// as GeoJSON, or the key of a cell, "1.4.2". The page needs a middle and an extent of each.

/** {lon, lat, metres} of a place: its middle, and its radius where it has one (else 0). */
export function middle(place, cells) {
  if (Array.isArray(place)) return { lon: place[0], lat: place[1], metres: 0 };
  if (place && place.circle) {
    const [lon, lat, metres] = place.circle;
    return { lon, lat, metres };
  }
  const box = boxOf(place, cells);
  if (!box) return null;
  const [west, south, east, north] = box;
  return { lon: (west + east) / 2, lat: (south + north) / 2, metres: ((north - south) / 2) * 111_195 };
}

/** [west, south, east, north] of a box or a cell, or around a polygon; null for what is none. */
function boxOf(place, cells) {
  if (typeof place === "string") return cells.named(place);
  if (!place || !place.coordinates) return (place && place.box) || null;
  const numbers = place.coordinates.flat(Infinity);
  const [lons, lats] = [0, 1].map((first) => numbers.filter((_, at) => at % 2 === first));
  return [Math.min(...lons), Math.min(...lats), Math.max(...lons), Math.max(...lats)];
}

/** "42.65 N 73.77 W" */
export function coordinates(lon, lat) {
  const part = (value, plus, minus) => `${Math.abs(value).toFixed(3)} ${value < 0 ? minus : plus}`;
  return `${part(lat, "N", "S")} ${part(lon, "E", "W")}`;
}

/** The nearest town of the map within 40 km, or "". */
export function nearestTown(lon, lat, towns) {
  let [best, name] = [40, ""];
  for (const town of towns) {
    const x = (town.at[0] - lon) * 111.2 * Math.cos((lat * Math.PI) / 180);
    const far = Math.hypot(x, (town.at[1] - lat) * 111.2);
    if (far < best) [best, name] = [far, town.name];
  }
  return name;
}

/** An event's body in a few words. */
export function summary(body) {
  if (body === null || typeof body !== "object") return JSON.stringify(body);
  const parts = [];
  if (typeof body.kind === "string") parts.push(body.kind);
  if (body.severity !== undefined) parts.push(`severity ${body.severity}`);
  if (body.road) parts.push(String(body.road));
  if (body.near) parts.push(`near ${body.near}`);
  return parts.length ? parts.join(", ") : JSON.stringify(body).slice(0, 120);
}
