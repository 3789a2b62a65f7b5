// <regard-heatmap>: the map on a canvas, with zoom from the whole to single cells.

import { color, ink, paint } from "regard/color.js";
import { css, element, Panel, sharpen } from "regard/panel.js";
import { tokenText } from "regard/texts.js";
import { number } from "regard/vector.js";

const LARGEST_CELL = 56;
const LEVELS = 3; // lines of horizontal key labels, before they are rotated
const LINE = 16; // pixels
const FONT = "12px system-ui, sans-serif";

export class Heatmap extends Panel {
  build() {
    const button = (name, sign, action) =>
      element("button", { type: "button", "data-tooltip": name, onclick: action }, sign);
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.over = element("canvas", { class: "over", "aria-hidden": "true" });
    this.stage = element("div", {
      class: "stage", tabindex: "0", role: "application", "data-aria": "heatmap",
      onkeydown: (event) => this.press(event),
      onpointermove: (event) => this.move(event),
      onpointerdown: (event) => this.grab(event),
      onpointerup: (event) => this.drop(event),
      onpointerleave: () => this.dragged || this.view.point(null, null),
      ondblclick: (event) => this.zoom(2, this.place(event)),
    }, this.canvas, this.over);
    this.stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.note = element("p", { class: "small" });
    this.append(
      element("div", { class: "tools" },
        button("zoomIn", "+", () => this.zoom(1.6)),
        button("zoomOut", "−", () => this.zoom(1 / 1.6)),
        button("fit", "⤢", () => this.fit())),
      this.stage, this.note);
    new ResizeObserver(() => this.view.map && this.schedule(this.layout)).observe(this);
  }

  update(changed) {
    if (changed.has("map") || changed.has("trace")) {
      const shape = `${this.view.map.rows}×${this.view.map.columns}`;
      if (shape !== this.shape) this.window = null;
      this.shape = shape;
      this.layout();
    } else if (["colors", "curve", "range", "theme"].some((name) => changed.has(name))) this.schedule(this.draw);
    if (changed.has("map") || changed.has("language")) {
      const { exact } = this.view.map;
      this.note.textContent = exact === Infinity ? "" : this.view.text("pooled", { k: exact });
    }
    if (changed.has("query") || changed.has("key") || changed.has("locked")) this.schedule(this.mark);
  }

  /** Divide the room between labels and cells, and draw. Key labels are horizontal if they fit. */
  layout() {
    const [queries, keys] = this.view.labels;
    const { rows, columns } = this.view.map;
    const context = this.canvas.getContext("2d");
    context.font = FONT;
    const widest = (labels, most) => {
      let width = 16;
      const every = Math.ceil(labels.length / 400);
      for (let i = 0; i < labels.length; i += every) {
        width = Math.max(width, context.measureText(tokenText(labels[i])).width);
      }
      return Math.min(width, most) + 10;
    };
    const width = Math.max(this.clientWidth, 240);
    this.left = widest(queries, Math.min(130, width / 3));
    const room = width - this.left - 2;
    const high = widest(keys, 120);
    const most = Math.max(Math.min(window.innerHeight * 0.75, 640) - 22, 160);
    this.largest = Math.max(LARGEST_CELL, Math.min(high, 96));
    this.smallest = Math.min(room / columns, most / rows, this.largest);
    // neighbours that are wider than a cell stand on different lines
    this.levels = Math.ceil((high - 4) / this.smallest);
    this.flat = this.levels <= LEVELS;
    this.top = this.flat ? 6 + LINE * this.levels : high;
    const roomy = Math.max(this.smallest, 14); // where all is too small to read, zoom has more room
    this.plotWidth = Math.min(roomy * columns, room);
    this.plotHeight = Math.min(roomy * rows, most);
    if (!this.window) this.window = { cell: this.smallest, x: 0, y: 0 };
    this.window.cell = Math.max(this.window.cell, this.smallest);
    this.clamp();
    this.width = this.left + this.plotWidth + 2;
    this.height = this.top + this.plotHeight + 2;
    this.stage.style.width = `${this.width}px`;
    this.stage.style.height = `${this.height}px`;
    this.draw();
  }

  draw() {
    const { rows, columns } = this.view.map;
    const context = sharpen(this.canvas, this.width, this.height);
    const { cell, x, y } = this.window;
    const top = Math.floor(y), bottom = Math.min(rows, Math.ceil(y + this.plotHeight / cell));
    const left = Math.floor(x), right = Math.min(columns, Math.ceil(x + this.plotWidth / cell));
    const height = Math.min(bottom - top, Math.ceil((bottom - top) * cell * devicePixelRatio));
    const width = Math.min(right - left, Math.ceil((right - left) * cell * devicePixelRatio));
    const tiles = this.view.map.raster(top, bottom, left, right, height, width);
    const picture = element("canvas", { width, height });
    const paper = picture.getContext("2d");
    paper.putImageData(paint(paper.createImageData(width, height), tiles, this.view), 0, 0);
    context.imageSmoothingEnabled = false;
    context.save();
    context.beginPath();
    context.rect(this.left, this.top, this.plotWidth, this.plotHeight);
    context.clip();
    context.drawImage(
      picture, this.left + (left - x) * cell, this.top + (top - y) * cell,
      (right - left) * cell, (bottom - top) * cell);
    if (cell >= 34) this.numbers(context, top, bottom, left, right);
    context.restore();
    this.names(context, top, bottom, left, right);
    this.mark();
  }

  numbers(context, top, bottom, left, right) {
    const { cell, x, y } = this.window;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let query = top; query < bottom; query++) {
      for (let key = left; key < right; key++) {
        const weight = this.view.map.cell(query, key);
        if (weight === null || weight < 0.005) continue;
        context.fillStyle = ink(this.view, weight);
        context.fillText(
          weight.toFixed(2).replace(/^0/, ""),
          this.left + (key + 0.5 - x) * cell, this.top + (query + 0.5 - y) * cell);
      }
    }
  }

  names(context, top, bottom, left, right) {
    const [queries, keys] = this.view.labels;
    const [specialQueries, specialKeys] = this.view.special;
    const [plain, soft] = [css(this, "--ink"), css(this, "--soft")];
    const { cell, x, y } = this.window;
    const every = Math.max(1, Math.ceil(13 / cell));
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let query = Math.ceil(top / every) * every; query < bottom; query += every) {
      const place = this.top + (query + 0.5 - y) * cell;
      if (place < this.top || place > this.top + this.plotHeight) continue;
      context.fillStyle = specialQueries.has(query) ? soft : plain;
      context.fillText(cut(context, tokenText(queries[query]), this.left - 8), this.left - 6, place);
    }
    context.textAlign = this.flat ? "center" : "left";
    for (let key = Math.ceil(left / every) * every; key < right; key += every) {
      const place = this.left + (key + 0.5 - x) * cell;
      if (place < this.left || place > this.left + this.plotWidth) continue;
      context.save();
      context.translate(place, this.top - 6);
      if (!this.flat) context.rotate(-Math.PI / 2);
      const label = this.flat ? tokenText(keys[key]) : cut(context, tokenText(keys[key]), this.top - 8);
      context.fillStyle = specialKeys.has(key) ? soft : plain;
      context.fillText(label, 0, this.flat ? -4 - LINE * ((key / every) % this.levels) : 0);
      context.restore();
    }
  }

  /** Outline the selected query and key. */
  mark() {
    const context = sharpen(this.over, this.width, this.height);
    const { query, key } = this.view;
    const { cell, x, y } = this.window;
    context.beginPath();
    context.rect(this.left - 1, this.top - 1, this.plotWidth + 2, this.plotHeight + 2);
    context.clip();
    const box = (column, row, columns, rows, strength) => {
      for (const [width, style] of [[strength + 2, css(this, "--paper")], [strength, css(this, "--accent")]]) {
        context.lineWidth = width;
        context.strokeStyle = style;
        context.strokeRect(
          this.left + (column - x) * cell, this.top + (row - y) * cell,
          Math.max(columns * cell, 1), Math.max(rows * cell, 1));
      }
    };
    const { rows, columns } = this.view.map;
    if (query !== null) box(0, query, columns, 1, this.view.locked ? 2 : 1);
    if (key !== null) box(key, 0, 1, rows, this.view.locked ? 2 : 1);
    if (query !== null && key !== null) box(key, query, 1, 1, 3);
  }

  place(event) {
    const box = this.stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  /** The cell at a place on the canvas; null outside, or in the labels of the other side. */
  at([left, top]) {
    const { cell, x, y } = this.window;
    const key = Math.floor(x + (left - this.left) / cell);
    const query = Math.floor(y + (top - this.top) / cell);
    const inside = (place, start, size) => place >= start && place < start + size;
    return [
      inside(top, this.top, this.plotHeight) && query < this.view.map.rows ? query : null,
      inside(left, this.left, this.plotWidth) && key < this.view.map.columns ? key : null,
    ];
  }

  move(event) {
    const place = this.place(event);
    if (this.dragged) {
      const [left, top] = this.dragged.place;
      if (Math.hypot(place[0] - left, place[1] - top) > 3) this.dragged.far = true;
      const { cell } = this.window;
      this.window.x = this.dragged.x - (place[0] - left) / cell;
      this.window.y = this.dragged.y - (place[1] - top) / cell;
      this.clamp();
      this.schedule(this.draw);
    } else this.view.point(...this.at(place));
  }

  grab(event) {
    this.stage.setPointerCapture(event.pointerId);
    this.dragged = { place: this.place(event), x: this.window.x, y: this.window.y, far: false };
  }

  drop(event) {
    const { far } = this.dragged ?? { far: true };
    this.dragged = null;
    if (!far) this.view.pin(...this.at(this.place(event)));
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY / 300), this.place(event));
  }

  press(event) {
    const { rows, columns } = this.view.map;
    const query = this.view.query ?? 0, key = this.view.key ?? 0;
    const page = Math.max(1, Math.floor(this.plotHeight / this.window.cell) - 1);
    const moves = {
      ArrowUp: [query - 1, key], ArrowDown: [query + 1, key],
      ArrowLeft: [query, key - 1], ArrowRight: [query, key + 1],
      PageUp: [query - page, key], PageDown: [query + page, key],
      Home: [query, 0], End: [query, columns - 1],
    };
    const actions = {
      "+": () => this.zoom(1.6, this.middle()), "=": () => this.zoom(1.6, this.middle()),
      "-": () => this.zoom(1 / 1.6, this.middle()), 0: () => this.fit(),
      Enter: () => this.view.pin(query, key), " ": () => this.view.pin(query, key),
      Escape: () => this.view.unpin(),
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (moves[event.key]) {
      const row = Math.min(Math.max(moves[event.key][0], 0), rows - 1);
      const column = Math.min(Math.max(moves[event.key][1], 0), columns - 1);
      this.view.change({ query: row, key: column });
      this.reveal(row, column);
    } else if (actions[event.key]) actions[event.key]();
    else return;
    event.preventDefault();
  }

  /** The selected cell, if any. */
  middle() {
    const { query, key } = this.view;
    if (query === null || key === null) return undefined;
    const { cell, x, y } = this.window;
    return [this.left + (key + 0.5 - x) * cell, this.top + (query + 0.5 - y) * cell];
  }

  reveal(query, key) {
    const { cell } = this.window;
    const wide = this.plotWidth / cell, high = this.plotHeight / cell;
    const within = (start, size, place) =>
      place < start ? place : place + 1 > start + size ? place + 1 - size : start;
    const x = within(this.window.x, wide, key), y = within(this.window.y, high, query);
    if (x !== this.window.x || y !== this.window.y) {
      Object.assign(this.window, { x, y });
      this.clamp();
      this.schedule(this.draw);
    }
  }

  zoom(factor, at = [this.left + this.plotWidth / 2, this.top + this.plotHeight / 2]) {
    const { cell, x, y } = this.window;
    const size = Math.min(Math.max(cell * factor, this.smallest), this.largest);
    this.window.x = x + (at[0] - this.left) * (1 / cell - 1 / size);
    this.window.y = y + (at[1] - this.top) * (1 / cell - 1 / size);
    this.window.cell = size;
    this.clamp();
    this.schedule(this.draw);
  }

  fit() {
    this.window = { cell: this.smallest, x: 0, y: 0 };
    this.schedule(this.draw);
  }

  clamp() {
    const { rows, columns } = this.view.map;
    const { cell } = this.window;
    const limit = (start, most) => Math.max(0, Math.min(start, most));
    this.window.x = limit(this.window.x, columns - this.plotWidth / cell);
    this.window.y = limit(this.window.y, rows - this.plotHeight / cell);
  }
}

function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let letters = [...text].slice(0, 40);
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > width) letters.pop();
  return letters.join("") + "…";
}

/** The colour scale, from 0 to 1 or to the largest weight. */
export class Scale extends Panel {
  build() {
    this.bar = element("span", { class: "bar", "aria-hidden": "true" });
    this.end = element("span");
    this.append("0", this.bar, this.end);
  }

  update() {
    const { colors, curve, top } = this.view;
    const stops = Array.from({ length: 33 }, (_, i) => color({ colors, curve }, i / 32));
    this.end.textContent = top === 1 ? "1" : number(top);
    this.bar.style.background = `linear-gradient(90deg, ${stops.join(", ")})`;
  }
}

customElements.define("regard-heatmap", Heatmap);
customElements.define("regard-scale", Scale);
