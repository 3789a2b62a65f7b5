// A small line chart as SVG.

import { element } from "regard/panel.js";

const WIDTH = 520, HEIGHT = 220, LEFT = 52, RIGHT = 12, TOP = 26, BOTTOM = 34;
const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {{name: string, points: number[][], color: string}[]} series
 * @param {{x: string, y: string, title: string, logarithmic?: boolean}} about
 */
export function lines(series, { x, y, title, logarithmic = false }) {
  const all = series.flatMap(({ points }) => points).filter(([, value]) => Number.isFinite(value) && (!logarithmic || value > 0));
  const scale = logarithmic ? Math.log : (value) => value;
  const range = (axis) => {
    const values = all.map((point) => scale(point[axis]));
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high > low ? [low, high] : [low - 1, high + 1];
  };
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title, class: "chart" });
  if (!all.length) return element("div", { class: "chart-box" }, picture);
  const [[x0, x1], [y0, y1]] = [range(0), range(1)];
  const across = (value) => LEFT + ((scale(value) - x0) / (x1 - x0)) * (WIDTH - LEFT - RIGHT);
  const down = (value) => HEIGHT - BOTTOM - ((scale(value) - y0) / (y1 - y0)) * (HEIGHT - TOP - BOTTOM);
  const back = logarithmic ? Math.exp : (value) => value;
  for (const share of [0, 0.5, 1]) {
    const value = back(y0 + share * (y1 - y0)), height = down(value);
    picture.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: height, y2: height, class: "grid-line" }), label(LEFT - 6, height + 4, short(value, back(y1) - back(y0)), "end"));
    const place = back(x0 + share * (x1 - x0));
    picture.append(label(across(place), HEIGHT - BOTTOM + 16, short(place, back(x1) - back(x0)), ["start", "middle", "end"][2 * share]));
  }
  picture.append(label(WIDTH - RIGHT, HEIGHT - 3, x, "end"), label(4, 10, y, "start"));
  for (const { points, color } of series) {
    const shown = points.filter(([, value]) => Number.isFinite(value) && (!logarithmic || value > 0));
    const path = svg("polyline", { points: shown.map(([a, b]) => `${across(a).toFixed(1)},${down(b).toFixed(1)}`).join(" "), fill: "none", "stroke-width": 2 });
    path.style.stroke = color;
    picture.append(path);
    if (shown.length < 30) {
      for (const [a, b] of shown) {
        const dot = svg("circle", { cx: across(a), cy: down(b), r: 3 });
        dot.style.fill = color;
        picture.append(dot);
      }
    }
  }
  const legend = series.map(({ name, color }) => {
    const mark = element("span", { class: "mark", "aria-hidden": "true" });
    mark.style.background = color;
    return element("li", {}, mark, name);
  });
  return element("div", { class: "chart-box" }, picture, element("ul", { class: "legend" }, ...legend));
}

/** A number with as many digits as tell the ends of its axis apart. */
function short(value, range) {
  const digits = Math.min(Math.max(Math.ceil(-Math.log10(range)) + 1, 0), 6);
  return value.toFixed(Number.isInteger(value) ? 0 : digits);
}

function label(x, y, text, anchor) {
  const made = svg("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
