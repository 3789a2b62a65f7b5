// <regard-graph>: words as nodes, weights as edges from the query to what it attends to.

import { element, Panel } from "regard/panel.js";
import { tokenText } from "regard/texts.js";

const MOST = 48; // nodes
const HORIZONTAL = 24; // nodes whose labels need no rotation
const SIZE = 520;
const SVG = "http://www.w3.org/2000/svg";

export class Graph extends Panel {
  build() {
    this.picture = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, "aria-hidden": "true" });
    this.stage = element("div", {
      class: "stage", tabindex: "0", role: "application", "data-aria": "graph",
      onkeydown: (event) => this.press(event), onpointerleave: () => this.view.point(null, null),
    }, this.picture);
    this.note = element("p", { class: "small" });
    this.append(this.stage, this.note);
    this.nodes = [];
  }

  update(changed) {
    if (["map", "trace", "share", "language"].some((name) => changed.has(name))) this.schedule(this.layout);
    else if (changed.has("query") || changed.has("key") || changed.has("locked")) {
      const { query, key } = this.view;
      const isShown = (side, index) => index === null || this.nodes.some((n) => n[side] === index);
      if (this.isPart && !(isShown("query", query) && isShown("key", key))) this.scheduleLater(this.layout);
      else this.schedule(this.highlight);
    }
  }

  /** One node per word: where queries and keys are the same words, one node is both. */
  layout() {
    const [queries, keys] = this.view.labels;
    const { rows, columns } = this.view.map;
    const isSelf = this.view.about.queries === this.view.about.keys && rows === columns;
    const total = isSelf ? rows : rows + columns;
    this.isPart = total > MOST;
    const near = this.isPart ? this.neighbours() : null;
    const nodes = [];
    const kept = (side, index) => !near || near[side].has(index) || (isSelf && near.key.has(index));
    for (let i = 0; i < rows; i++) {
      if (kept("query", i)) nodes.push({ query: i, key: isSelf ? i : null, text: queries[i] });
    }
    if (!isSelf) {
      for (let i = columns - 1; i >= 0; i--) if (kept("key", i)) nodes.push({ query: null, key: i, text: keys[i] });
    }
    this.note.textContent = this.isPart ? this.view.text("graphPart", { shown: nodes.length, all: total }) : "";
    const count = Math.max(nodes.length, 1), longest = Math.max(...nodes.map(({ text }) => [...short(tokenText(text))].length), 1);
    const radius = SIZE / 2 - Math.min(100, 24 + 8 * longest);
    nodes.forEach((node, i) => {
      // queries down the right side, keys down the left; words of one text all around
      node.angle = ((i + 0.5) / count) * 2 * Math.PI - Math.PI / 2;
      node.x = SIZE / 2 + radius * Math.cos(node.angle);
      node.y = SIZE / 2 + radius * Math.sin(node.angle);
    });
    this.nodes = nodes;
    this.draw();
  }

  neighbours() {
    const query = this.view.query ?? (this.view.key === null ? 0 : this.view.receivers(this.view.key)[0]?.[0] ?? 0);
    const near = { query: new Set([query]), key: new Set(this.view.key === null ? [] : [this.view.key]) };
    const { rows } = this.view.map;
    for (let i = Math.max(0, query - 5); i < Math.min(rows, query + 6); i++) near.query.add(i);
    for (const i of near.query) {
      for (const [key] of this.view.links(i).slice(0, i === query ? 16 : 2)) near.key.add(key);
    }
    return near;
  }

  draw() {
    const byKey = new Map(this.nodes.filter((n) => n.key !== null).map((n) => [n.key, n]));
    const edges = svg("g", { class: "edges" });
    this.edges = [];
    const received = new Map();
    for (const node of this.nodes) {
      if (node.query === null) continue;
      for (const [key, weight] of this.view.links(node.query).slice(0, 12)) {
        const other = byKey.get(key);
        if (!other) continue;
        received.set(other, (received.get(other) ?? 0) + weight);
        const path = svg("path", {
          d: curve(node, other), "stroke-width": 0.8 + 5 * weight, opacity: 0.15 + 0.8 * weight,
        });
        this.edges.push({ path, query: node.query, key, weight });
        edges.append(path);
      }
    }
    const words = svg("g", {});
    for (const node of this.nodes) {
      const isRight = Math.cos(node.angle) >= 0;
      const degrees = this.nodes.length > HORIZONTAL ? (node.angle * 180) / Math.PI : isRight ? 0 : 180;
      node.dot = svg("circle", {
        cx: node.x, cy: node.y, r: 4 + 3 * Math.sqrt(received.get(node) ?? 0),
        class: node.query === null ? "key" : node.key === null ? "query" : "both",
      });
      node.label = svg("text", {
        transform: `translate(${node.x} ${node.y}) rotate(${isRight ? degrees : degrees + 180})`,
        x: isRight ? 13 : -13, dy: "0.35em", "text-anchor": isRight ? "start" : "end",
      });
      node.label.textContent = short(tokenText(node.text));
      node.group = svg("g", { class: "node" });
      node.group.append(node.dot, node.label);
      node.group.addEventListener("pointerenter", () => this.view.point(node.query, node.query === null ? node.key : null));
      node.group.addEventListener("click", () => this.view.pin(node.query, node.query === null ? node.key : null));
      words.append(node.group);
    }
    this.picture.replaceChildren(edges, words);
    this.highlight();
  }

  /** Highlight the edges of the selection. */
  highlight() {
    const { query, key } = this.view;
    const focused = query !== null || key !== null;
    const touched = new Set();
    for (const edge of this.edges) {
      const isOwn = !focused || (query === null ? edge.key === key : edge.query === query && (key === null || true));
      edge.path.classList.toggle("dim", !isOwn);
      edge.path.classList.toggle("own", focused && isOwn);
      if (isOwn) touched.add(`q${edge.query}`).add(`k${edge.key}`);
    }
    for (const node of this.nodes) {
      const isChosen = (node.query !== null && node.query === query) || (node.key !== null && node.key === key);
      node.group.classList.toggle("chosen", isChosen);
      node.group.classList.toggle("dim",
        focused && !isChosen && !touched.has(`q${node.query}`) && !touched.has(`k${node.key}`));
    }
  }

  press(event) {
    const { rows } = this.view.map;
    const now = this.view.query;
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in moves) {
      const next = now === null ? 0 : Math.min(Math.max(now + moves[event.key], 0), rows - 1);
      this.view.change({ query: next, key: null });
    } else if (event.key === "Enter" || event.key === " ") this.view.pin(now ?? 0, null);
    else if (event.key === "Escape") this.view.unpin();
    else return;
    event.preventDefault();
  }
}

function curve(from, to) {
  if (from === to) {
    const out = (turn) => [from.x + 46 * Math.cos(from.angle + turn + Math.PI), from.y + 46 * Math.sin(from.angle + turn + Math.PI)];
    return `M${from.x} ${from.y} C${out(-0.5).join(" ")} ${out(0.5).join(" ")} ${to.x} ${to.y}`;
  }
  const bend = (a, b) => (a + b) / 2 + (SIZE / 2 - (a + b) / 2) * 0.45;
  return `M${from.x} ${from.y} Q${bend(from.x, to.x)} ${bend(from.y, to.y)} ${to.x} ${to.y}`;
}

function short(text) {
  const letters = [...text];
  return letters.length <= 12 ? text : letters.slice(0, 11).join("") + "…";
}

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

customElements.define("regard-graph", Graph);
