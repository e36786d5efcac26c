// Charts as SVG. A table beside each chart has the same numbers.

import { draw } from "./dom.js";

const WIDTH = 360, LEFT = 38, RIGHT = 4, TOP = 8, BOTTOM = 18;
let charts = 0;

/** A round number that is not less than `value`. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function frame(svg, height, top, labels) {
  const y = (value) => TOP + (height - TOP - BOTTOM) * (1 - value / top);
  for (const value of [0, top / 2, top]) {
    if (!Number.isInteger(value)) continue;
    svg.append(
      draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  svg.append(
    draw("text", { x: LEFT, y: height - 4 }, labels[0]),
    draw("text", { x: WIDTH - RIGHT, y: height - 4, "text-anchor": "end" }, labels[1]));
  return y;
}

function short(value) {
  if (value >= 1e9) return `${value / 1e9}G`;
  if (value >= 1e6) return `${value / 1e6}M`;
  return value >= 1e4 ? `${value / 1e3}k` : String(value);
}

/** Bars of admitted, queued and denied requests, one on the other. */
export class Bars {
  constructor() {
    this.height = 140;
    this.pattern = `hatch-${++charts}`;
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${this.height}`, role: "img" });
  }

  /** `bars` are objects with three counts, `slots` the number of bars that fit. */
  show(bars, slots, labels, description) {
    const svg = this.svg;
    svg.setAttribute("aria-label", description);
    svg.replaceChildren(draw("defs", {}, draw("pattern",
      { id: this.pattern, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      draw("rect", { class: "hatch", width: 5, height: 5 }),
      draw("line", { class: "hatch-line", x1: 0, x2: 0, y1: 0, y2: 5 }))));
    const top = ceiling(Math.max(...bars.map((bar) => bar.admitted + bar.queued + bar.denied), 2));
    const y = frame(svg, this.height, top, labels);
    const step = (WIDTH - LEFT - RIGHT) / slots;
    const gap = step > 4 ? 1 : 0;
    bars.forEach((bar, at) => {
      const x = WIDTH - RIGHT - (bars.length - at) * step;
      let below = 0;
      for (const kind of ["admitted", "queued", "denied"]) {
        if (bar[kind] === 0) continue;
        const rect = { x, width: step - gap, y: y(below + bar[kind]), height: y(below) - y(below + bar[kind]) };
        if (kind === "denied") rect.fill = `url(#${this.pattern})`;
        else rect.class = kind;
        svg.append(draw("rect", rect));
        below += bar[kind];
      }
    });
  }
}

/** A line of a level. */
export class Level {
  constructor() {
    this.height = 80;
    this.svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${this.height}`, role: "img" });
  }

  show(values, slots, top, labels, description) {
    const svg = this.svg;
    svg.setAttribute("aria-label", description);
    svg.replaceChildren();
    const y = frame(svg, this.height, top, labels);
    const step = (WIDTH - LEFT - RIGHT) / (slots - 1);
    const points = values.map((value, at) =>
      `${(WIDTH - RIGHT - (values.length - 1 - at) * step).toFixed(1)},${y(Math.min(value, top)).toFixed(1)}`);
    svg.append(draw("polyline", { class: "level", points: points.join(" ") }));
  }
}
