// <regard-strip>: queries above, keys below, and links between them.

import { css, element, Panel, sharpen } from "regard/panel.js";
import { isRightToLeft, tokenText } from "regard/texts.js";
import { number } from "regard/vector.js";

const HEIGHT = 130; // of the links, in CSS pixels
const LONG = 160; // words of a side that are all shown
const AROUND = 24; // words around the query where there are more
const MOST_LINKS = 3000;

export class Strip extends Panel {
  build() {
    const row = (side) =>
      element("div", {
        class: `words ${side}`, role: "listbox", tabindex: "0",
        onkeydown: (event) => this.press(event, side),
        onpointerover: (event) => this.over(event, side),
        onclick: (event) => this.click(event, side),
      });
    this.rows = { query: row("query"), key: row("key") };
    this.canvas = element("canvas", {
      "aria-hidden": "true",
      onpointermove: (event) => this.near(event, (side, index) => this.point(side, index)),
      onclick: (event) => this.near(event, (side, index) => this.pin(side, index)),
    });
    this.titles = { query: element("p", { class: "small" }), key: element("p", { class: "small" }) };
    this.inner = element("div", { class: "inner", onpointerleave: () => this.view.point(null, null) },
      this.rows.query, this.canvas, this.rows.key);
    this.append(this.titles.query, element("div", { class: "scroll", tabindex: "-1" }, this.inner), this.titles.key);
    new ResizeObserver(() => this.view.map && this.schedule(this.measure)).observe(this);
  }

  update(changed) {
    const { query, key } = this.view;
    const isAway = (side, index) => index !== null && !this.places?.[side].has(index);
    if (changed.has("map") || changed.has("share") || changed.has("trace")) this.words();
    else if ((isAway("query", query) || isAway("key", key)) && this.isLong) this.scheduleLater(this.words);
    else if (changed.has("query") || changed.has("key") || changed.has("locked") || changed.has("theme")) {
      this.schedule(this.draw);
    }
    if (changed.has("map") || changed.has("language")) {
      const { queries, keys } = this.view.about;
      this.titles.query.textContent = this.view.text("queries", { side: this.view.name(queries) });
      this.titles.key.textContent = this.view.text("keys", { side: this.view.name(keys) });
      this.rows.query.setAttribute("aria-label", this.titles.query.textContent);
      this.rows.key.setAttribute("aria-label", this.titles.key.textContent);
    }
  }

  /** Which words of each side are shown: all, or those around the query and what it attends to. */
  selected() {
    const { rows, columns } = this.view.map;
    this.isLong = rows > LONG || columns > LONG;
    const all = (count) => Array.from({ length: count }, (_, i) => i);
    if (!this.isLong) return [all(rows), all(columns)];
    const around = (middle, size, count) => {
      const start = Math.max(0, Math.min(middle - (size >> 1), count - size));
      return all(Math.min(size, count)).map((i) => i + start);
    };
    const { query, key } = this.view;
    const middle = query ?? (key === null ? 0 : Math.min(Math.floor((key * rows) / columns), rows - 1));
    const queries = rows > LONG ? around(middle, AROUND, rows) : all(rows);
    const keys = new Set(key === null ? [] : [key]);
    if (query !== null) for (const [key] of this.view.links(query).slice(0, AROUND)) keys.add(key);
    for (const query of queries) for (const [key] of this.view.links(query).slice(0, 2)) keys.add(key);
    const kept = columns > LONG ? [...keys].sort((a, b) => a - b) : all(columns);
    return [queries, kept];
  }

  words() {
    const [queries, keys] = this.view.labels;
    const [specialQueries, specialKeys] = this.view.special;
    const [shownQueries, shownKeys] = this.selected();
    this.places = { query: new Map(), key: new Map() };
    for (const [side, labels, special, indices] of [
      ["query", queries, specialQueries, shownQueries], ["key", keys, specialKeys, shownKeys],
    ]) {
      let before = -1;
      const words = [];
      for (const index of indices) {
        if (index !== before + 1) words.push(element("span", { class: "gap", role: "presentation" }, "…"));
        const word = element("span", {
          class: special.has(index) ? "word special" : "word", role: "option", id: `${this.view.prefix}-${side}-${index}`, dir: "auto",
          "aria-selected": "false", "data-index": index,
        });
        word.textContent = tokenText(labels[index]);
        this.places[side].set(index, { word });
        words.push(word);
        before = index;
      }
      if (before !== labels.length - 1) words.push(element("span", { class: "gap", role: "presentation" }, "…"));
      this.rows[side].replaceChildren(...words);
      this.rows[side].dir = isRightToLeft(labels) ? "rtl" : "ltr";
    }
    this.measure();
  }

  measure() {
    if (!this.places) return;
    const start = this.inner.getBoundingClientRect().left;
    for (const side of ["query", "key"]) {
      for (const place of this.places[side].values()) {
        const box = place.word.getBoundingClientRect();
        place.x = box.left - start + box.width / 2;
      }
    }
    this.width = this.inner.getBoundingClientRect().width;
    this.draw();
  }

  draw() {
    const { query, key, locked } = this.view;
    const context = sharpen(this.canvas, this.width, HEIGHT);
    const focused = query !== null || key !== null;
    const shade = { query: new Map(), key: new Map() };
    const links = [];
    for (const from of this.places.query.keys()) {
      if (query !== null && key === null && from !== query) continue;
      for (const [to, weight] of this.view.links(from)) {
        if (!this.places.key.has(to)) continue;
        if (key !== null && query === null && to !== key) continue;
        if (key !== null && query !== null && from !== query && to !== key) continue;
        links.push([from, to, weight]);
      }
    }
    if (query !== null && key !== null && this.places.key.has(key) && this.places.query.has(query)) {
      const weight = this.view.map.cell(query, key);
      if (weight && !links.some(([a, b]) => a === query && b === key)) links.push([query, key, weight]);
    }
    links.sort((a, b) => b[2] - a[2]);
    const accent = css(this, "--accent"), other = css(this, "--other");
    context.lineCap = "round";
    for (const [from, to, weight] of links.slice(0, MOST_LINKS).reverse()) {
      const start = this.places.query.get(from).x, end = this.places.key.get(to).x;
      const isMain = query === null ? true : from === query;
      context.globalAlpha = focused ? (isMain ? 0.25 + 0.75 * weight : 0.15 + 0.5 * weight) : 0.08 + 0.8 * weight;
      context.strokeStyle = isMain ? accent : other;
      context.lineWidth = 0.75 + 5 * weight;
      context.beginPath();
      context.moveTo(start, 0);
      context.bezierCurveTo(start, HEIGHT * 0.45, end, HEIGHT * 0.55, end, HEIGHT);
      context.stroke();
      shade.key.set(to, Math.max(shade.key.get(to) ?? 0, isMain ? weight : 0));
      shade.query.set(from, Math.max(shade.query.get(from) ?? 0, weight));
    }
    context.globalAlpha = 1;
    this.shade(shade, focused);
    const chosen = { query, key };
    for (const side of ["query", "key"]) {
      const own = this.places[side].get(chosen[side]);
      for (const { word } of this.places[side].values()) {
        const isChosen = word === own?.word;
        if ((word.getAttribute("aria-selected") === "true") !== isChosen) word.setAttribute("aria-selected", isChosen);
        word.classList.toggle("kept", isChosen && locked);
      }
      if (own) this.rows[side].setAttribute("aria-activedescendant", own.word.id);
      else this.rows[side].removeAttribute("aria-activedescendant");
    }
    const own = query !== null && this.isLong && this.places.query.get(query);
    if (own && own !== this.shownWord) this.showWord(own);
  }

  /** Colour words by the weight that reaches them, while something is pointed at. */
  shade(shade, focused) {
    const { query, key } = this.view;
    for (const [side, isOther] of [["key", query !== null], ["query", key !== null]]) {
      for (const [index, { word }] of this.places[side]) {
        const weight = focused && isOther ? (shade[side].get(index) ?? 0) : 0;
        word.style.setProperty("--weight", `${Math.round(weight * 55)}%`);
        word.title = weight ? number(weight) : "";
        word.classList.toggle("dim", focused && isOther && weight === 0);
      }
    }
  }

  showWord(own) {
    this.shownWord = own;
    const scroll = this.inner.parentElement;
    const left = own.x - scroll.clientWidth / 2;
    if (Math.abs(own.x - scroll.scrollLeft - scroll.clientWidth / 2) > scroll.clientWidth / 2.2) scroll.scrollLeft = left;
  }

  over(event, side) {
    const word = event.target.closest(".word");
    if (word) this.point(side, Number(word.dataset.index));
  }

  click(event, side) {
    const word = event.target.closest(".word");
    if (word) this.pin(side, Number(word.dataset.index));
  }

  point(side, index) {
    this.view.point(side === "query" ? index : null, side === "key" ? index : null);
  }

  pin(side, index) {
    this.view.pin(side === "query" ? index : null, side === "key" ? index : null);
  }

  /** The nearest word to a place between the rows: the hit area of a word is its whole column. */
  near(event, act) {
    const side = event.offsetY < HEIGHT / 2 ? "query" : "key";
    let best = null, least = Infinity;
    for (const [index, { x }] of this.places[side]) {
      const far = Math.abs(x - event.offsetX);
      if (far < least) [best, least] = [index, far];
    }
    if (best !== null && least < 60) act(side, best);
  }

  press(event, side) {
    const count = side === "query" ? this.view.map.rows : this.view.map.columns;
    const now = this.view[side];
    const step = this.rows[side].dir === "rtl" ? -1 : 1;
    const moves = {
      ArrowRight: now === null ? 0 : now + step, ArrowLeft: now === null ? count - 1 : now - step,
      Home: 0, End: count - 1,
    };
    if (event.key in moves) {
      const index = Math.min(Math.max(moves[event.key], 0), count - 1);
      this.view.change({ query: null, key: null, [side]: index });
    } else if (event.key === "Enter" || event.key === " ") this.pin(side, now ?? 0);
    else if (event.key === "Escape") this.view.unpin();
    else return;
    event.preventDefault();
  }
}

customElements.define("regard-strip", Strip);
