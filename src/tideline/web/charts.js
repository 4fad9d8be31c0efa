// Small charts of the last minute, one point a second. A chart's lines share one scale, which starts
// at nought; its top is written beside it. Drawn once a second.

const SECONDS = 60;

export class Chart {
  /** lines: [{colour: name of a CSS property, dashed}]; `text` writes the top of the scale. */
  constructor(canvas, top, lines, text = short) {
    Object.assign(this, { canvas, top, lines, text });
    this.values = lines.map(() => []);
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** The next second's values, one a line; null where there is none. */
  add(...values) {
    values.forEach((value, i) => {
      this.values[i].push(value);
      if (this.values[i].length > SECONDS) this.values[i].shift();
    });
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const scale = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const most = nice(Math.max(...this.values.flat().filter((value) => value !== null), 0));
    this.top.textContent = most ? this.text(most) : "";
    const style = getComputedStyle(canvas);
    context.strokeStyle = style.getPropertyValue("--line").trim();
    context.lineWidth = 1;
    context.beginPath();
    for (const y of [0.5, Math.round(height) - 0.5]) {
      context.moveTo(0, y);
      context.lineTo(width, y);
    }
    context.stroke();
    if (!most) return;
    this.lines.forEach(({ colour, dashed }, i) => {
      this.#line(context, this.values[i], most, width, height, style.getPropertyValue(colour).trim(), dashed);
    });
  }

  /** One line, broken where a second has no value; a value on its own is a dot. */
  #line(context, values, most, width, height, colour, dashed) {
    const x = (i) => width - 2 - (values.length - 1 - i) * ((width - 4) / (SECONDS - 1));
    const y = (value) => height - 2 - (value / most) * (height - 4);
    context.strokeStyle = context.fillStyle = colour;
    context.lineJoin = context.lineCap = "round";
    context.lineWidth = 1.5;
    let start = 0;
    for (let i = 0; i <= values.length; i++) {
      if (i < values.length && values[i] !== null) continue;
      if (i === start + 1) { // a line without length draws nothing
        context.beginPath();
        context.arc(x(start), y(values[start]), 1.5, 0, 7);
        context.fill();
      } else if (i > start) {
        context.beginPath();
        context.moveTo(x(start), y(values[start]));
        for (let j = start; j < i; j++) context.lineTo(x(j), y(values[j]));
        context.setLineDash(dashed ? [3, 3] : []);
        context.stroke();
        context.setLineDash([]);
        if (!dashed) {
          context.lineTo(x(i - 1), height - 1);
          context.lineTo(x(start), height - 1);
          context.globalAlpha = 0.1;
          context.fill();
          context.globalAlpha = 1;
        }
      }
      start = i + 1;
    }
  }
}

/** The next of 1, 2, 5, 10, 20 ... */
function nice(value) {
  if (!(value > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.999) * power;
}

/** 1234567 as "1.23 M": never longer than seven characters, below a thousand T. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6]]) {
    if (value >= 0.9995 * size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  if (value >= 99_950) return `${Math.round(value / 1e3)} k`;
  if (value >= 9_995) return `${(value / 1e3).toFixed(1)} k`;
  if (value >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toPrecision(1);
}

/** 12345 as "12.3 kB": never longer than seven characters. */
export function bytes(count) {
  if (count === null || count === undefined || Number.isNaN(count)) return "–";
  for (const [unit, size] of [["B", 1], ["kB", 1e3], ["MB", 1e6], ["GB", 1e9]]) {
    if (count < size * 999.5) return `${size === 1 ? Math.round(count) : (count / size).toPrecision(3)} ${unit}`;
  }
  return `${(count / 1e12).toPrecision(3)} TB`;
}

/** 0.0042 as "4.2 ms", 75 as "75 s", 7200 as "2 h". */
export function duration(seconds) {
  if (seconds < 0.001) return "under 1 ms";
  if (seconds < 1) return `${(seconds * 1000).toPrecision(2) * 1} ms`;
  if (seconds < 120) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} days`;
}
