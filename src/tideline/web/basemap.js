// The still part of the map: land, water and roads below everything, names above everything. Drawn
// when the view or the colours change, never for what happens on it.

const KM = 1000;

const CITY_FROM = 8; // times closer than the whole: the shore of the city, and its avenues
const STREETS_FROM = 24;

/** What lies below. `land`, `roads` and `city` are the files of those names; colours come from the theme. */
export function drawBasemap(context, view, land, roads, city, colours) {
  context.fillStyle = colours.abroad;
  context.fillRect(0, 0, view.width, view.height);
  context.lineJoin = context.lineCap = "round";

  context.fillStyle = colours.water;
  context.beginPath();
  for (const { ring } of land.water) trace(context, view, ring, true);
  context.fill();
  for (const line of land.lines) if (line.under) river(context, view, line, colours.water);

  context.beginPath();
  for (const ring of land.state) trace(context, view, ring, true);
  context.fillStyle = colours.land;
  context.fill();
  context.strokeStyle = colours.outline;
  context.lineWidth = 1;
  context.stroke();
  for (const line of land.lines) if (!line.under) river(context, view, line, colours.water);
  if (view.closeness() > CITY_FROM) drawCity(context, view, city, colours);

  context.strokeStyle = colours.road;
  context.lineWidth = Math.min(1 + view.pixels(500), 3);
  context.beginPath();
  for (const road of roads.roads) trace(context, view, road.points, false);
  context.stroke();

  drawBounds(context, view, colours);
}

/** A city close by: its own shore over the coarse one, a park, avenues, and closer still the streets. */
function drawCity(context, view, city, colours) {
  const fill = (rings, colour) => {
    context.fillStyle = colour;
    context.beginPath();
    for (const ring of rings) trace(context, view, ring, true);
    context.fill();
  };
  fill([city.water], colours.water);
  fill(city.shore, colours.land);
  fill(city.park, colours.park);
  context.strokeStyle = colours.outline;
  context.lineWidth = 1;
  context.beginPath();
  for (const ring of city.shore) trace(context, view, ring, true);
  context.stroke();
  context.strokeStyle = colours.road;
  const lines = (streets, metres, least) => {
    context.lineWidth = Math.min(Math.max(view.pixels(metres), least), 12);
    context.beginPath();
    for (const street of streets) trace(context, view, street, false);
    context.stroke();
  };
  if (view.closeness() > STREETS_FROM) lines(city.minor, 10, 0.6);
  lines(city.major, 24, 0.8);
}

function trace(context, view, points, closed) {
  points.forEach(([lon, lat], i) => {
    if (i === 0) context.moveTo(view.x(lon), view.y(lat));
    else context.lineTo(view.x(lon), view.y(lat));
  });
  if (closed) context.closePath();
}

function river(context, view, line, colour) {
  context.strokeStyle = colour;
  context.lineWidth = Math.max(view.pixels(line.km * KM), 0.6);
  context.beginPath();
  trace(context, view, line.points, false);
  context.stroke();
}

/** The rectangle of the channel's space: the root cell of its tree. */
function drawBounds(context, view, colours) {
  const [west, south, east, north] = view.bounds;
  context.strokeStyle = colours.outline;
  context.globalAlpha = 0.5;
  context.setLineDash([2, 4]);
  context.strokeRect(
    Math.round(view.x(west)) + 0.5, Math.round(view.y(north)) + 0.5,
    Math.round((east - west) * view.kx), Math.round((north - south) * view.ky),
  );
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/** The names of towns, larger ones first, and of waters; none covers another, or what is `taken`. */
export function drawLabels(context, view, land, roads, colours, taken = []) {
  const family = colours.font;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.font = `12px ${family}`;
  context.lineJoin = "round";
  const small = view.width < 560 && view.isWhole();
  for (const town of [...roads.towns].sort((a, b) => b.weight - a.weight)) {
    const [x, y] = [Math.round(view.x(town.at[0])), Math.round(view.y(town.at[1]))];
    const wide = context.measureText(town.name).width;
    const big = town.weight >= 7;
    if (small && town.weight < 2) continue;
    // To the right of its dot, or else to the left; left out where it would cover another.
    let left = x + 7;
    if (!free(taken, view, left - 9, y - 8, wide + 12, 16)) {
      left = x - 7 - wide;
      if (!free(taken, view, left - 3, y - 8, wide + 12, 16)) continue;
    }
    context.strokeStyle = colours.land;
    context.lineWidth = 2.5;
    context.strokeText(town.name, left, y);
    context.lineWidth = 1.5;
    context.fillStyle = colours.town;
    context.beginPath();
    context.arc(x, y, big ? 3 : 2, 0, 7);
    context.stroke();
    context.fill();
    context.fillStyle = big ? colours.townLabelStrong : colours.townLabel;
    context.fillText(town.name, left, y);
  }
  context.fillStyle = colours.waterLabel;
  context.textAlign = "center";
  context.font = `italic 12px ${family}`;
  for (const { name, label } of land.water) {
    const [x, y] = [view.x(label[0]), view.y(label[1])];
    const wide = context.measureText(name).width;
    if (!free(taken, view, x - wide / 2, y - 8, wide, 16)) continue;
    context.fillText(name, x, y);
  }
}

/** Take the room for a label if it is free and on the screen. */
function free(taken, view, x, y, width, height) {
  if (x < 4 || y < 4 || x + width > view.width - 4 || y + height > view.height - 4) return false;
  for (const [x1, y1, w1, h1] of taken) {
    if (x < x1 + w1 && x1 < x + width && y < y1 + h1 && y1 < y + height) return false;
  }
  taken.push([x, y, width, height]);
  return true;
}
