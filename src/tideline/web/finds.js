// Places that were searched for, on the map: a ring each, and its name where there is room.

const REACH = 6;

/** Draw {lon, lat, name, active}, the active one last and always with its name; returns the room they take. */
export function drawFinds(context, view, places, colours) {
  context.font = `600 12px ${colours.font}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.lineJoin = "round";
  const shown = [...places].sort((a, b) => a.active - b.active)
    .map((place) => ({ ...place, x: view.x(place.lon), y: view.y(place.lat) }))
    .filter(({ x, y }) => x > -REACH && y > -REACH && x < view.width + REACH && y < view.height + REACH);
  const taken = shown.map(({ x, y }) => [x - REACH - 2, y - REACH - 2, 2 * REACH + 4, 2 * REACH + 4]);
  for (const place of shown) {
    context.beginPath();
    context.arc(place.x, place.y, place.active ? REACH + 2 : REACH, 0, 7);
    context.fillStyle = place.active ? colours.find : colours.land;
    context.fill();
    context.lineWidth = 2.5;
    context.strokeStyle = colours.find;
    context.stroke();
  }
  for (const place of shown.reverse()) label(context, view, place, taken, colours);
  return taken;
}

/** To the right of its ring, or else to the left; left out where it would cover something. */
function label(context, view, { x, y, name, active }, taken, colours) {
  const wide = context.measureText(name).width;
  const sides = [x + REACH + 6, x - REACH - 6 - wide].filter((left) => left > 4 && left + wide < view.width - 4);
  const left = sides.find((each) => isFree(taken, each - 2, y - 9, wide + 4, 18)) ?? (active ? sides[0] : undefined);
  if (left === undefined) return;
  taken.push([left - 2, y - 9, wide + 4, 18]);
  context.lineWidth = 4;
  context.strokeStyle = colours.land;
  context.strokeText(name, left, y);
  context.fillStyle = colours.find;
  context.fillText(name, left, y);
}

const isFree = (taken, x, y, width, height) =>
  !taken.some(([x1, y1, w1, h1]) => x < x1 + w1 && x1 < x + width && y < y1 + h1 && y1 < y + height);
