// <attention-figure preset="…">: attention on a few numbers or words, computed while they change.

import { attend, cutIntoHeads, MASKS, multiHead, NORMALIZERS, SCORES } from "regard/attention.js";
import { color, ink } from "regard/color.js";
import { style } from "regard/figure.css";
import { say } from "regard/figure_texts.js";
import { element } from "regard/panel.js";
import { parametersOf, PRESETS, wordsOf } from "regard/presets.js";
import { style as stepsStyle } from "regard/steps.css";
import { digits, number } from "regard/vector.js";

const STEPS = new URL("figure_steps.js", document.currentScript.src).href;
const LOOK = { colors: "viridis", curve: "linear", top: 1 };
const MOST_WORDS = 16;
const WIDEST = 8; // numbers of a vector that are shown to be changed
const SAME_WIDTH = ["dot", "scaled_dot", "cosine"];
const MASK_NAMES = ["none", "causal", "window", "padding", "segments", "cells"];
const SIDES = ["query", "key", "value"];
const START = { score: "scaled_dot", mask: "none", normalize: "softmax", temperature: 1, head: 0, query: 0, left: 1, right: 1, ids: "0 0 1 1", sample: 0, edits: [], length: null };

export class AttentionFigure extends HTMLElement {
  connectedCallback() {
    if (this.shadowRoot) return;
    this.name = this.getAttribute("preset");
    this.preset = PRESETS[this.name];
    this.root = this.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(stepsStyle + style);
    this.root.adoptedStyleSheets = [sheet];
    this.state = { ...this.start, ...this.addressed() };
    this.compute();
    this.build();
    this.show();
    this.dataset.ready = String(Math.round(performance.now()));
  }

  /** What the figure begins with. */
  get start() {
    const { query, key, value, text, lengths, cells, positions = false } = this.preset;
    const own = Object.fromEntries(Object.keys(START).filter((name) => name in this.preset && !SIDES.includes(name)).map((name) => [name, this.preset[name]]));
    return { ...START, ...own, ...(text === undefined ? {} : { text }), ...(lengths ? { lengths } : {}), ...(query ? { numbers: { query, key, value } } : {}), cells, positions };
  }

  get language() {
    return document.documentElement.lang.startsWith("ko") ? "ko" : "en";
  }

  text(key, values) {
    return say(this.language, key, values);
  }

  // ------------------------------------------------------------------ state

  /** The changes that the address has for this figure. */
  addressed() {
    try {
      const found = JSON.parse(new URLSearchParams(location.search).get(this.name) ?? "{}");
      const known = Object.entries(found).filter(([name, value]) => name in this.start && isValid(name, value, this.start[name]));
      return Object.fromEntries(known);
    } catch {
      return {}; // an address that was cut off
    }
  }

  change(fields, isNewShape = false) {
    Object.assign(this.state, fields);
    const { start } = this;
    const changes = Object.entries(this.state).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(start[name]));
    const query = new URLSearchParams(location.search);
    query.delete(this.name);
    if (changes.length) query.set(this.name, JSON.stringify(Object.fromEntries(changes)));
    history.replaceState(history.state, "", `${location.pathname}${query.size ? `?${query}` : ""}${location.hash}`);
    if (isNewShape) this.drawInputs();
    this.draw();
  }

  reset() {
    this.state = this.start;
    this.change({});
    this.controls.replaceChildren(...this.fields());
    this.drawInputs();
    this.draw();
  }

  // ------------------------------------------------------------------ what is computed

  /** Queries, keys and values, or what W_Q, W_K and W_V make them of, and their labels. */
  inputs() {
    const { preset, state } = this;
    if (state.text !== undefined) {
      const words = wordsOf(state.text).slice(0, MOST_WORDS), x = preset.of(words, state);
      return { labels: [words, words], query: x, key: x, value: x };
    }
    if (state.lengths) {
      const longest = Math.max(...state.lengths);
      const labels = Array.from({ length: longest }, (_, place) => (place < state.lengths[state.sample] ? `${state.sample + 1}.${place + 1}` : "–"));
      const x = preset.of(labels);
      return { labels: [labels, labels], query: x, key: x, value: x };
    }
    return { labels: preset.labels, ...state.numbers };
  }

  mask({ labels: [queries, keys] }) {
    const { mask, left, right, lengths, sample, length, ids, cells } = this.state;
    if (mask === "none") return null;
    const id = wordsOf(ids), of = (names) => names.map((_, place) => id[Math.min(place, id.length - 1)]);
    return {
      causal: () => MASKS.causal(), window: () => MASKS.window(left, right), padding: () => MASKS.padding(lengths ? lengths[sample] : (length ?? keys.length)),
      segments: () => MASKS.segments(of(queries), of(keys)), cells: () => MASKS.visible(cellsOf(cells, queries.length, keys.length)),
    }[mask]();
  }

  /** Every step of the attention, and the call that the steps show. */
  compute() {
    const { preset, state } = this;
    const { heads = 1 } = preset;
    const inputs = this.inputs();
    const { query, key, value, labels } = inputs;
    const layer = preset.layer ? { ...(this.made ??= preset.layer(query[0].length)) } : null;
    for (const [head, side, row, column, typed] of layer ? state.edits : []) {
      const name = { queryWeight: "W_Q", keyWeight: "W_K", valueWeight: "W_V" }[side];
      layer[name] = layer[name].map((each) => [...each]);
      layer[name][row][column + (head * layer[name][0].length) / heads] = typed;
    }
    const widths = layer ? [layer.W_Q[0].length / heads, layer.W_K[0].length / heads] : [query[0].length, key[0].length];
    const score = widths[0] !== widths[1] && SAME_WIDTH.includes(state.score) ? "general" : state.score;
    const options = { score, mask: this.mask(inputs), normalize: state.normalize, temperature: state.temperature,
      parameters: preset.parameters?.[score] ?? parametersOf(score, ...widths, key.length) };
    const found = layer ? multiHead(query, key, value, { heads, ...layer }, options)
      : { query: [query], key: [key], value: [value], heads: [attend(query, key, value, options)] };
    const parts = layer && {
      inputQuery: query, inputKey: key === query ? null : key, inputValue: value === key ? null : value,
      queryWeight: cutIntoHeads(layer.W_Q, heads), keyWeight: cutIntoHeads(layer.W_K, heads), valueWeight: cutIntoHeads(layer.W_V, heads),
      outputWeight: layer.W_O, output: layer.W_O && found.output,
    };
    this.computed = { inputs, layer, heads, options, widths, found };
    this.call = { name: this.name, sides: ["query", "key"], labels, heads: found.heads, options,
      vectors: { query: found.query, key: found.key, value: found.value }, layer: parts ?? {} };
  }

  // ------------------------------------------------------------------ controls

  build() {
    this.controls = element("div", { class: "controls" }, ...this.fields());
    this.formula = element("p", { class: "formula" });
    this.numbers = element("details", { class: "numbers" });
    this.mapBox = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("map") });
    this.contextBox = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("context") });
    this.status = element("p", { class: "status", role: "status", "aria-live": "polite" });
    this.count = element("p", { class: "small" });
    this.problem = element("p", { class: "problem", role: "alert", hidden: true });
    this.stepsBox = element("details", { class: "steps-box", ontoggle: () => this.drawSteps() }, element("summary", {}, this.text("steps")));
    const copy = element("button", { type: "button", onclick: async () => {
      await navigator.clipboard?.writeText(location.href);
      copy.textContent = this.text("copied");
      setTimeout(() => { copy.textContent = this.text("copy"); }, 1500);
    } }, this.text("copy"));
    this.root.append(element("section", { class: "figure", lang: this.language, "aria-label": this.text("title") },
      element("p", { class: "about" }, element("b", {}, `${this.text("title")}. `), this.text(`about-${this.name}`)),
      this.controls, this.problem, this.numbers, this.formula,
      element("div", { class: "result answer" }, element("div", { class: "part" }, element("h4", {}, this.text("map")), this.mapBox),
        element("div", { class: "part" }, this.contextTitle = element("h4"), this.contextBox)),
      this.status, this.count, this.stepsBox,
      element("div", { class: "buttons" }, element("button", { type: "button", onclick: () => this.reset() }, this.text("reset")), copy)));
    this.drawInputs();
  }

  field(label, input) {
    return element("label", { class: "field" }, element("span", {}, label), input);
  }

  select(name, options) {
    const isOff = (value) => name === "score" && this.computed && this.computed.widths[0] !== this.computed.widths[1] && SAME_WIDTH.includes(value);
    const select = element("select", { name, onchange: () => this.change({ [name]: select.value }) || this.extras() },
      ...options.map((value) => element("option", { value, selected: value === this.state[name], disabled: isOff(value) }, this.text(`${name}-${value}`))));
    return this.field(this.text(name), select);
  }

  whole(name, least, most) {
    const input = element("input", { type: "number", name, min: least, max: most, step: 1, value: this.state[name] ?? "", oninput: () => {
      const typed = Math.round(Number(input.value));
      if (input.value !== "" && typed >= least && typed <= most) this.change({ [name]: typed });
    } });
    return this.field(this.text(name), input);
  }

  line(name, act) {
    const input = element("input", { type: "text", name, dir: "auto", spellcheck: "false", autocomplete: "off", maxlength: 200,
      value: Array.isArray(this.state[name]) ? this.state[name].join(" ") : this.state[name], oninput: () => act(input.value) });
    return this.field(this.text(name === "text" ? "words" : name), input);
  }

  fields() {
    const { preset, state } = this;
    const { heads = 1 } = preset;
    const fields = [];
    if (state.text !== undefined) fields.push(this.line("text", (text) => this.typed(text)));
    if (state.lengths) {
      fields.push(this.line("lengths", (text) => {
        const lengths = wordsOf(text).map(Number);
        if (lengths.length && lengths.every((each) => Number.isInteger(each) && each > 0 && each <= MOST_WORDS)) {
          this.change({ lengths, sample: Math.min(state.sample, lengths.length - 1) });
        }
      }));
      fields.push(this.choice("sample", () => this.state.lengths.length, 1));
    }
    fields.push(this.select("score", Object.keys(SCORES)), this.select("mask", MASK_NAMES), this.more = element("span", { class: "more" }),
      this.select("normalize", Object.keys(NORMALIZERS)));
    const output = element("output", {}, state.temperature.toFixed(2));
    const slider = element("input", { type: "range", name: "temperature", min: -2, max: 2, step: 0.1, value: String(Math.log(state.temperature)), "aria-valuetext": output.textContent,
      oninput: () => {
        const temperature = Number(slider.value) === 0 ? 1 : Number(Math.exp(Number(slider.value)).toFixed(3));
        output.textContent = temperature.toFixed(2);
        slider.setAttribute("aria-valuetext", output.textContent);
        this.change({ temperature });
      } });
    fields.push(element("span", { class: "field" }, this.field(this.text("temperature"), slider), output));
    if (preset.positions) {
      const box = element("input", { type: "checkbox", name: "positions", checked: state.positions, onchange: () => this.change({ positions: box.checked }) });
      fields.push(element("label", { class: "field" }, box, element("span", {}, this.text("positions"))));
    }
    if (heads > 1) fields.push(this.choice("head", () => heads, 0));
    this.extras();
    return fields;
  }

  /** A menu of numbers. */
  choice(name, count, first) {
    const select = element("select", { name, onchange: () => this.change({ [name]: Number(select.value) }) },
      ...Array.from({ length: count() }, (_, place) => element("option", { value: place, selected: place === this.state[name] }, String(place + first))));
    return this.field(this.text(name), select);
  }

  /** What the chosen mask needs to know. */
  extras() {
    const { mask, lengths } = this.state;
    const parts = {
      window: () => [this.whole("left", 0, MOST_WORDS), this.whole("right", 0, MOST_WORDS)],
      padding: () => lengths ? [] : [this.whole("length", 0, MOST_WORDS)],
      segments: () => [this.line("ids", (ids) => wordsOf(ids).length && this.change({ ids }))],
      cells: () => [element("span", { class: "small" }, this.text("cellsHelp"))],
    }[mask]?.() ?? [];
    this.more.replaceChildren(...parts);
  }

  typed(text) {
    const words = wordsOf(text);
    this.problem.hidden = words.length > 0 && words.length <= MOST_WORDS;
    this.problem.textContent = this.text(words.length ? "tooMany" : "tooFew", { most: MOST_WORDS });
    if (words.length) this.change({ text, query: Math.min(this.state.query, words.length - 1) });
  }

  /** Tables of the numbers that can be changed, if they are few. */
  drawInputs() {
    const { numbers } = this.state;
    this.numbers.hidden = !numbers || numbers.query[0].length > WIDEST;
    if (this.numbers.hidden) return;
    const { labels, layer } = this.preset;
    const names = layer ? ["x", "y", "z"] : SIDES;
    const tables = SIDES.map((side, place) => {
      const title = this.text(names[place]);
      const rows = numbers[side].map((row, i) => element("tr", {}, element("th", { scope: "row", dir: "auto" }, labels[place ? 1 : 0][i]),
        ...row.map((value, j) => {
          const input = element("input", { type: "number", step: "any", value: String(value), "aria-label": this.text("entry", { name: title, row: i + 1, column: j + 1 }),
            oninput: () => {
              const typed = Number(input.value);
              if (input.value === "" || !Number.isFinite(typed) || Math.abs(typed) > 1e6) return;
              const changed = this.state.numbers[side].map((each) => [...each]);
              changed[i][j] = typed;
              this.change({ numbers: { ...this.state.numbers, [side]: changed } });
            } });
          return element("td", {}, input);
        })));
      return element("div", { class: "part" }, element("h4", {}, title),
        element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, element("table", {}, element("tbody", {}, ...rows))));
    });
    this.numbers.replaceChildren(element("summary", {}, this.text("numbers")), element("div", { class: "result" }, ...tables));
    this.numbers.open = true;
  }

  // ------------------------------------------------------------------ results

  draw() {
    this.compute();
    this.show();
  }

  show() {
    const { found, inputs, options } = this.computed;
    const { state } = this;
    const head = Math.min(state.head, found.heads.length - 1), one = found.heads[head];
    const query = Math.min(state.query, inputs.labels[0].length - 1);
    const focus = this.root.activeElement?.id;
    this.formula.textContent = `C = ${this.text(`normalize-${options.normalize}`)}( ${this.text(`score-${options.score}`)}${options.mask ? " + M" : ""}${options.temperature === 1 ? "" : `, τ = ${options.temperature.toFixed(2)}`} ) · V`;
    this.mapBox.replaceChildren(this.map(one, inputs.labels, query));
    const contexts = found.output && this.computed.layer.W_O ? found.output : one.context;
    this.contextTitle.textContent = this.text(contexts === one.context ? "context" : "outputs");
    this.contextBox.replaceChildren(this.contexts(contexts, inputs.labels[0], query));
    const ranked = one.weights[query].map((weight, key) => [weight, key]).filter(([weight]) => weight > 0).sort((a, b) => b[0] - a[0]).slice(0, 4);
    const links = ranked.map(([weight, key]) => this.text("link", { weight: number(weight), key: inputs.labels[1][key] })).join(", ");
    this.status.textContent = this.text(ranked.length ? "attends" : "nothing", { query: inputs.labels[0][query], links });
    const visible = one.visible.flat();
    this.count.textContent = this.text("pairs", { visible: visible.filter(Boolean).length, all: visible.length });
    if (focus) this.root.getElementById(focus)?.focus();
    this.drawSteps();
  }

  map({ weights, visible }, [queries, keys], chosen) {
    const isOwn = this.state.mask === "cells";
    const cell = (weight, i, j) => {
      const text = visible[i][j] ? number(weight) : "";
      const made = element("td", { class: visible[i][j] ? null : "hidden", title: this.text("cell", { query: queries[i], key: keys[j] }) });
      if (visible[i][j]) Object.assign(made.style, { background: color(LOOK, weight), color: ink(LOOK, weight) });
      if (!isOwn) made.append(visible[i][j] ? text : element("span", { class: "visually-hidden" }, this.text("hidden")));
      else made.append(element("button", { type: "button", id: `cell-${i}-${j}`, "aria-pressed": String(visible[i][j]),
        "aria-label": `${this.text("cell", { query: queries[i], key: keys[j] })}: ${visible[i][j] ? `${this.text("visible")}, ${text}` : this.text("hidden")}`,
        onclick: () => this.toggle(i, j) }, text || "−∞"));
      return made;
    };
    const rows = queries.map((label, i) => element("tr", { class: i === chosen ? "chosen" : null },
      element("th", { scope: "row" }, element("button", { type: "button", id: `query-${i}`, dir: "auto", "aria-pressed": String(i === chosen), onclick: () => this.change({ query: i }) }, label)),
      ...weights[i].map((weight, j) => cell(weight, i, j))));
    return element("table", { class: "map" }, element("thead", {}, element("tr", {}, element("td"), ...keys.map((label) => element("th", { scope: "col", dir: "auto" }, label)))),
      element("tbody", {}, ...rows));
  }

  toggle(i, j) {
    const [queries, keys] = this.computed.inputs.labels;
    const cells = cellsOf(this.state.cells, queries.length, keys.length);
    cells[i][j] = cells[i][j] ? 0 : 1;
    this.change({ cells });
  }

  contexts(rows, labels, chosen) {
    const width = Math.min(rows[0].length, WIDEST);
    return element("table", {}, element("tbody", {}, ...rows.map((row, i) => element("tr", { class: i === chosen ? "chosen" : null },
      element("th", { scope: "row", dir: "auto" }, labels[i]), ...row.slice(0, width).map((value) => element("td", {}, digits(value))), row.length > width ? element("td", {}, "…") : null))));
  }

  /** The steps of the chosen query, once they are opened. */
  async drawSteps() {
    if (!this.stepsBox.open) return;
    const { Computed, View } = await loadSteps();
    const { inputs } = this.computed;
    const payload = new Computed(this.call);
    payload.edit = (trace, call, head, ...cell) => this.change({ edits: [...this.state.edits, [head, ...cell]] });
    const heads = [Math.min(this.state.head, this.computed.heads - 1)], query = Math.min(this.state.query, inputs.labels[0].length - 1);
    if (this.view) {
      Object.assign(this.view, { payload, heads, query });
      this.view.load(["edited"]);
      return;
    }
    this.view = new View(payload, { language: this.language, heads, query });
    this.workflow = document.createElement("regard-workflow");
    this.stepsBox.append(this.workflow);
    this.workflow.view = this.view;
    this.view.load(["trace", "language"]);
  }
}

/** What shows the steps: a script of its own, since most readers open none. */
function loadSteps() {
  loadSteps.script ??= new Promise((loaded, failed) => {
    document.head.append(element("script", { src: STEPS, onload: () => loaded(modules["figure_steps.js"]), onerror: failed }));
  });
  return loadSteps.script.then(({ steps }) => steps);
}

/** Which cells are visible; those that nobody has chosen are. */
function cellsOf(cells, rows, columns) {
  return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => cells?.[i]?.[j] ?? 1));
}

/** Whether a value of the address can stand in the place of the first one. */
function isValid(name, value, first) {
  const isMatrix = (rows) => Array.isArray(rows) && rows.length > 0 && rows.every((row) => Array.isArray(row) && row.every(Number.isFinite));
  const shape = (rows) => `${rows.length} × ${rows.map((row) => row.length)}`;
  const checks = {
    score: () => value in SCORES, mask: () => MASK_NAMES.includes(value), normalize: () => value in NORMALIZERS, temperature: () => value > 0 && value <= 10,
    text: () => typeof value === "string" && wordsOf(value).length > 0, ids: () => typeof value === "string" && wordsOf(value).length > 0, positions: () => typeof value === "boolean", cells: () => isMatrix(value),
    numbers: () => SIDES.every((side) => isMatrix(value[side]) && shape(value[side]) === shape(first[side])),
    lengths: () => isMatrix([value]) && value.every((each) => Number.isInteger(each) && each > 0 && each <= MOST_WORDS),
    edits: () => Array.isArray(value) && value.every((edit) => edit.length === 5 && /^(query|key|value)Weight$/.test(edit[1]) && [edit[0], ...edit.slice(2)].every(Number.isFinite)),
  };
  return checks[name]?.() ?? (Number.isInteger(value) && value >= 0 && value <= MOST_WORDS);
}

customElements.define("attention-figure", AttentionFigure);
