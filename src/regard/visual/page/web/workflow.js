// <regard-workflow>: how attention is computed for one query, with its numbers.

import { exponentials, total } from "regard/attention.js";
import { color } from "regard/color.js";
import { element, Panel } from "regard/panel.js";
import { digits, largest, number, strip } from "regard/vector.js";
import { tokenText } from "regard/texts.js";

const ALL_KEYS = 12; // listed in their order; of more keys those with the largest weights
const LISTED = 10; // of these
const HIDDEN = 2; // hidden keys that are listed beside them
const PRODUCTS = 8; // numbers of a product that are written out
const SIDE = 8; // rows and columns of a matrix that can be edited at once
const ALL_HEADS = 8e6; // cells of a call whose heads are all unpacked to stand side by side
const WIDTHS = { q: "query", k: "key", v: "value" };

// names of what a score multiplies, and of the product
const PRODUCT = {
  general: ["qᵀW", "k", "qᵀWk"],
  biased_general: ["Wq + b", "k", "kᵀ(Wq + b)"],
  activated_general: ["Wq", "k", "kᵀWq"],
  cosine: ["q / |q|", "k / |k|", "cos(q, k)"],
  location: ["q", "W", "W q"],
  additive: ["W₁q", "W₂k", "wᵀ tanh(W₁q + W₂k)"],
};
PRODUCT.concat = PRODUCT.additive;

export class Workflow extends Panel {
  build() {
    const step = (name, move) => element("button", { type: "button", "data-text": name, onclick: () => this.show(move) });
    this.chosen = element("p", { class: "chosen-query", "aria-live": "off" });
    this.stepper = element("div", { class: "stepper", role: "group", "data-aria": "steps" },
      step("firstStep", () => 1), step("previousStep", (shown) => shown - 1),
      step("nextStep", (shown) => shown + 1), step("allSteps", () => Infinity));
    this.steps = element("div", { class: "steps" });
    this.shown = Infinity; // steps from the first one
    this.append(this.chosen, this.stepper, this.steps);
  }

  /** Show the steps up to one of them. */
  show(move) {
    const all = this.steps.querySelectorAll(":scope > .step");
    this.shown = Math.max(1, move(Math.min(this.shown, all.length)));
    if (this.shown >= all.length) this.shown = Infinity;
    all.forEach((step, place) => { step.hidden = place >= this.shown; });
    all[Math.min(this.shown, all.length) - 1]?.scrollIntoView({ block: "nearest" });
  }

  async update(changed) {
    if (changed.has("map")) await this.fetch();
    if (changed.has("language")) {
      for (const button of this.stepper.children) button.textContent = this.view.text(button.dataset.text);
      this.stepper.setAttribute("aria-label", this.view.text("steps"));
    }
    this.scheduleLater(this.draw);
  }

  /** Unpack what was recorded of this call, and the maps of its other heads. */
  async fetch() {
    const { payload, trace, call, about } = this.view;
    this.fetched = this.view.map;
    const isSmall = about.heads * about.rows * about.columns <= ALL_HEADS;
    const heads = Array.from({ length: isSmall ? about.heads : 0 }, (_, head) => head);
    const [numbers, ...maps] = await Promise.all([
      payload.numbers(trace, call), ...heads.map((head) => payload.map(trace, call, head))]);
    if (this.fetched === this.view.map) Object.assign(this, { numbers, maps, place: `${trace}/${call}` });
  }

  draw() {
    const { view } = this;
    if (this.place !== `${view.trace}/${view.call}`) return;
    const [queries, keys] = view.labels;
    const query = view.query ?? this.last ?? queries.length >> 1; // the first often sees itself alone
    this.last = query < queries.length ? query : 0;
    const one = { query: this.last, head: view.heads[0], queries, keys, tensors: this.numbers?.tensors ?? {} };
    one.ranked = view.map.ranked(one.query);
    one.scores = one.tensors.scores?.row(one.head, one.query);
    one.key = view.key ?? one.ranked[0]?.[0] ?? 0;
    one.listed = this.listed(one);
    this.chosen.replaceChildren(element("b", { dir: "auto" }, tokenText(queries[one.query])),
      ...[view.about.name, view.headName].filter(Boolean).map((name) => ` · ${name}`));
    this.count = 0;
    const note = !this.numbers ? (view.about.noNumbers ?? "noNumbers") : view.heads.length > 1 ? "oneHead" : null;
    const focus = this.steps.contains(document.activeElement) ? document.activeElement.id : null;
    const parts = note ? [element("p", { class: "small note" }, view.text(note)), this.weights(one)] : [
      this.edited(), this.input(one), this.projections(one), this.compared(one), this.scoreProjections(one), this.pair(one),
      this.scores(one), this.scale(one), this.mask(one), this.normalizer(one), this.weighted(one), this.context(one)];
    this.steps.replaceChildren(...[...parts, this.heads(one), this.output(one), this.distribution(one)].filter(Boolean));
    if (this.shown < Infinity) this.show((shown) => shown);
    if (focus) this.steps.querySelector(`#${focus}`)?.focus();
  }

  /** The keys of the tables: all of few; of many those with the largest weights, and some hidden ones. */
  listed({ keys, key, ranked, scores }) {
    if (keys.length <= ALL_KEYS) return keys.map((_, place) => place);
    const found = new Set([key, ...ranked.slice(0, LISTED).map(([place]) => place)]);
    const hidden = [];
    if (scores) for (let place = 0; place < keys.length && hidden.length < HIDDEN; place++) if (Number.isNaN(scores[place])) hidden.push(place);
    return [...new Set([...found, ...hidden])].sort((a, b) => a - b);
  }

  step(title, help, ...children) {
    return element("section", { class: `step ${title}` }, element("h3", {}, `${++this.count}. ${this.view.text(title)}`),
      help ? element("p", { class: "small" }, help) : null, ...children);
  }

  /** Why a step that the layer has is missing, by the name of its tensor. */
  reason(tensor) {
    return this.numbers?.missing[tensor]?.[this.view.language] ?? null;
  }

  line(label, vector, most, kind) {
    return element("div", { class: `line ${kind}` },
      element("span", { class: "name", dir: "auto" }, tokenText(label)), strip(vector, label, most));
  }

  /** The vectors of the query and of the listed keys. */
  vectors(one, query, key) {
    const own = query?.row(one.head, one.query);
    const rows = key ? one.listed.map((index) => [one.keys[index], key.row(one.head, index)]) : [];
    const most = Math.max(...rows.map(([, vector]) => largest(vector)), 0);
    return element("div", { class: "lines" }, own ? this.line(one.queries[one.query], own, largest(own), "query") : null,
      ...rows.map(([label, vector]) => this.line(label, vector, most, "key")));
  }

  /** A table with a row for each listed key, and columns of texts or elements. */
  table(one, columns, foot = null) {
    const { view } = this;
    const rest = one.keys.length - one.listed.length;
    const cell = (content) => element("td", {}, content);
    const lines = one.listed.map((key) => element("tr", { class: key === one.key ? "chosen" : null },
      element("th", { scope: "row", dir: "auto" }, tokenText(one.keys[key])), ...columns.map(([, write]) => cell(write(key)))));
    if (rest) lines.push(element("tr", {}, element("td", { class: "small", colspan: columns.length + 1 }, view.text("otherKeys", { count: rest }))));
    if (foot) lines.push(element("tr", { class: "sum" }, element("th", { scope: "row" }, foot[0]), ...foot.slice(1).map(cell)));
    return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": view.text("key") }, element("table", {},
      element("thead", {}, element("tr", {}, ...[view.text("key"), ...columns.map(([title]) => title)].map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...lines)));
  }

  /** That numbers were changed, and a way back. */
  edited() {
    const { payload, trace, call } = this.view;
    if (!payload.isEdited(trace, call)) return null;
    return element("p", { class: "small note" }, this.view.text("edited"), " ", element("button", {
      type: "button", onclick: () => { payload.restore(trace, call); this.view.load(["edited"]); },
    }, this.view.text("restore")));
  }

  // ------------------------------------------------------------------ X, W_Q, W_K, W_V

  input(one) {
    const { inputQuery, inputKey, inputValue, query, key, value } = one.tensors;
    const { view, numbers } = this;
    if (inputQuery) {
      const values = inputValue ? [element("h4", {}, view.text("value")), this.vectors(one, null, inputValue)] : [];
      return this.step("input", view.text("inputHelp", { width: inputQuery.columns }), this.vectors(one, inputQuery, inputKey ?? inputQuery), ...values);
    }
    if (numbers.hasProjections) return element("p", { class: "small note" }, this.reason("inputQuery"));
    return this.step("vectors", view.text("vectorsHelp", { query: query.columns, key: key.columns, value: value.columns }),
      element("h4", {}, "q, k"), this.vectors(one, query, key), element("h4", {}, "v"), this.vectors(one, null, value));
  }

  projections(one) {
    if (!this.numbers.hasProjections) return null;
    const { projectedQuery, projectedKey, query, key, value } = one.tensors;
    const { view } = this;
    const made = { q: projectedQuery ?? query, k: projectedKey ?? key, v: value };
    const isEditable = view.payload.isEditable(view.trace, view.call);
    const parts = Object.entries(made).flatMap(([letter, tensor]) => {
      const name = `${WIDTHS[letter]}Weight`, weight = one.tensors[name];
      const bias = one.tensors[`${WIDTHS[letter]}Bias`] ? ` + b_${letter.toUpperCase()}` : "";
      return [
        weight ? this.matrix(one, name, `W_${letter.toUpperCase()}`, weight, isEditable) : null,
        element("h4", {}, `${letter} = x·W_${letter.toUpperCase()}${bias}`),
        this.vectors(one, letter === "q" ? tensor : null, letter === "q" ? null : tensor)];
    });
    const widths = { query: made.q.columns, key: made.k.columns, value: made.v.columns };
    return this.step("projections", view.text(isEditable ? "projectionsEditable" : "projectionsHelp", widths), ...parts.filter(Boolean));
  }

  /** A matrix of this head: a window of its numbers, which can be changed if that is known to be true. */
  matrix(one, name, title, tensor, isEditable) {
    const { view } = this;
    const [row, column] = (this.windows ??= {})[name] ?? [0, 0];
    const height = Math.min(SIDE, tensor.rows), width = Math.min(SIDE, tensor.columns);
    const id = (part) => `${view.prefix}-${name}-${part}`;
    const move = (place, most) => {
      const input = element("input", { type: "number", min: 1, max: most + 1, value: [row, column][place] + 1, id: id(`from${place}`),
        "aria-label": `${title}: ${view.text(place ? "firstColumn" : "firstRow")}`,
        onchange: () => {
          const next = [row, column];
          next[place] = Math.min(Math.max(Math.round(Number(input.value)) - 1 || 0, 0), most);
          this.windows[name] = next;
          this.draw();
        } });
      return input;
    };
    const cell = (i, j) => {
      const value = tensor.row(one.head, i)[j];
      if (!isEditable) return element("td", {}, digits(value));
      const input = element("input", { type: "number", step: "any", value: String(Number(value.toPrecision(4))), id: id(`${i}-${j}`),
        "aria-label": view.text("cell", { name: title, row: i + 1, column: j + 1 }),
        onchange: () => {
          const typed = Number(input.value);
          if (input.value === "" || !Number.isFinite(typed)) return this.draw();
          view.payload.edit(view.trace, view.call, one.head, name, i, j, typed);
          return view.load(["edited"]);
        } });
      return element("td", {}, input);
    };
    const rows = Array.from({ length: height }, (_, i) => element("tr", {}, ...Array.from({ length: width }, (_, j) => cell(row + i, column + j))));
    const isPart = tensor.rows > SIDE || tensor.columns > SIDE;
    return element("div", { class: "matrix" }, element("h4", {}, `${title} (${tensor.rows} × ${tensor.columns})`),
      isPart ? element("p", { class: "small window" }, view.text("firstRow"), " ", move(0, tensor.rows - height), " ", view.text("firstColumn"), " ", move(1, tensor.columns - width)) : null,
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, element("table", { class: "cells" }, element("tbody", {}, ...rows))));
  }

  /** Queries and keys where something happens to them between projection and score. */
  compared(one) {
    const { projectedQuery, projectedKey, query, key } = one.tensors;
    if (!projectedQuery && !projectedKey) return null;
    return this.step("compared", this.view.text("comparedHelp"), this.vectors(one, query, key));
  }

  // ------------------------------------------------------------------ scores

  /** What the score compares, and how the product is called. */
  get product() {
    return PRODUCT[this.numbers.score] ?? (this.numbers.tensors.left ? ["q′", "k′", "q′·k′"] : ["q", "k", "q·k"]);
  }

  scoreProjections(one) {
    const { left, right } = one.tensors;
    if (!left) return null;
    const [first, second] = this.product;
    const help = this.view.text(this.numbers.form === "additive" ? "additiveHelp" : "productHelp", { left: first, right: second });
    return this.step("scoreProjections", help, element("h4", {}, [first, second].join(", ")), this.vectors(one, left, right));
  }

  /** The numbers of one pair, and their products, one below the other; the sum is the score. */
  pair(one) {
    const { left, right, query, key, vector } = one.tensors;
    const { form, score, offset } = this.numbers;
    const { view } = this;
    const names = { query: tokenText(one.queries[one.query]), key: tokenText(one.keys[one.key]) };
    if (!form) return this.step("pair", view.text("pairOther", names));
    const a = (left ?? query).row(one.head, one.query), b = (right ?? key).row(one.head, one.key);
    const [first, second, title] = this.product;
    const rows = [[first, a], [second, b]];
    if (form === "additive") {
      const sums = Float64Array.from(a, (value, i) => value + b[i]);
      rows.push([`${first} + ${second}`, sums], ["tanh", sums.map(Math.tanh)], ["w", vector.row(one.head, 0)]);
    }
    const [[, c], [, d]] = rows.slice(-2);
    const products = Float64Array.from(c, (value, i) => value * d[i]);
    const result = total(products);
    const name = score === "activated_general" ? "activatedScore" : null;
    const written = Math.min(PRODUCTS, products.length), rest = products.length - written;
    const terms = Array.from({ length: written }, (_, i) => element("tr", {}, element("td", {}, String(i + 1)),
      ...rows.map(([, values]) => element("td", {}, digits(values[i]))), element("td", {}, digits(products[i]))));
    if (rest) terms.push(element("tr", {}, element("td", { colspan: rows.length + 1 }, view.text("otherProducts", { count: rest })),
      element("td", {}, digits(total(products.subarray(written))))));
    terms.push(element("tr", { class: "sum" }, element("th", { scope: "row", colspan: rows.length + 1 }, "Σ"), element("td", {}, digits(result))));
    const equation = name ? `tanh(${title} + b) = tanh(${digits(result)} + ${digits(offset)}) = ${digits(Math.tanh(result + offset))}` : `${title} = ${digits(result)}`;
    return this.step("pair", view.text(form === "additive" ? "pairAdditive" : "pairDot", names),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": view.text("pair") }, element("table", { class: "products" },
        element("thead", {}, element("tr", {}, ...["", ...rows.map(([label]) => label), form === "additive" ? "w · tanh" : `${first} · ${second}`].map((text) => element("th", { scope: "col" }, text)))),
        element("tbody", {}, ...terms))),
      element("p", { class: "result" }, equation));
  }

  /** The score of a key before scale, bias and mask; NaN if that is not known. */
  raw(one, key) {
    const { form, offset } = this.numbers;
    const { left, right, query, key: keys, vector } = one.tensors;
    if (!form) return one.scores?.[key] ?? NaN;
    const a = (left ?? query).row(one.head, one.query), b = (right ?? keys).row(one.head, key);
    let sum = 0;
    if (form === "additive") {
      const w = vector.row(one.head, 0);
      for (let i = 0; i < a.length; i++) sum += w[i] * Math.tanh(a[i] + b[i]);
      return sum;
    }
    for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
    return form === "activated" ? Math.tanh(sum + offset) : sum;
  }

  get scoreName() {
    if (!this.numbers.form) return this.view.text("score");
    return this.numbers.form === "activated" ? "tanh(kᵀWq + b)" : this.product[2];
  }

  scores(one) {
    if (!this.numbers.form && !one.scores) return element("p", { class: "small note" }, this.reason("scores"));
    return this.step("allScores", this.view.text("allScoresHelp", { query: tokenText(one.queries[one.query]) }),
      this.table(one, [[this.scoreName, (key) => digits(this.raw(one, key))]]));
  }

  scale(one) {
    const { form, scale, hasBias, temperature = 1 } = this.numbers;
    if (!form || (scale === 1 && temperature === 1 && !hasBias)) return null;
    const { view } = this;
    const width = (one.tensors.left ?? one.tensors.query).columns;
    const isRoot = Math.abs(scale * Math.sqrt(width) - 1) < 1e-4;
    const columns = [[this.scoreName, (key) => digits(this.raw(one, key))]];
    const help = [];
    if (scale !== 1) {
      const name = isRoot ? `÷ √${width} = ${digits(Math.sqrt(width))}` : `× ${digits(scale)}`;
      columns.push([name, (key) => digits(this.raw(one, key) * scale)]);
      help.push(view.text(isRoot ? "scaleHelp" : "factorHelp", { width, root: digits(Math.sqrt(width)) }));
    }
    if (hasBias && one.scores) {
      columns.push([`+ ${view.text("bias")}`, (key) => Number.isNaN(one.scores[key]) ? "" : digits(one.scores[key])]);
      help.push(view.text("biasHelp"));
    }
    if (temperature !== 1) {
      columns.push([`÷ τ = ${digits(temperature)}`, (key) => digits((this.raw(one, key) * scale) / temperature)]);
      help.push(view.text("temperatureHelp"));
    }
    return this.step("scaled", help.join(" "), this.table(one, columns));
  }

  mask(one) {
    const { hasMask, hasBias, form, scale, temperature = 1 } = this.numbers;
    if (!hasMask || !one.scores) return null;
    const before = (key) => Number.isNaN(one.scores[key]) && form && !hasBias ? this.raw(one, key) * scale : one.scores[key];
    let hidden = 0;
    for (const score of one.scores) if (Number.isNaN(score)) hidden++;
    const help = [this.view.text("maskHelp"), hidden ? this.view.text("hiddenKeys", { count: hidden }) : this.view.text("noMask")];
    return this.step("mask", help.join(" "), this.table(one, [
      [this.view.text("score"), (key) => digits(before(key) / temperature)],
      [this.view.text("maskColumn"), (key) => Number.isNaN(one.scores[key]) ? "−∞" : "0"],
      [this.view.text("masked"), (key) => digits(one.scores[key] / temperature)]]));
  }

  // ------------------------------------------------------------------ weights and sums

  bar(weight) {
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(1, weight) * 5}em`;
    bar.style.background = color(this.view, weight);
    return element("span", { class: "weight" }, bar, number(weight));
  }

  weightOf(one, key) {
    const weight = this.view.map.cell(one.query, key);
    return weight === null ? this.view.text("below", { weight: number(this.view.map.bound(one.query, key)) }) : this.bar(weight);
  }

  /** The weights alone, of what was recorded without numbers. */
  weights(one) {
    return this.step("weights", null, this.table(one, [[this.view.text("weight"), (key) => this.weightOf(one, key)]]));
  }

  normalizer(one) {
    const { view } = this;
    const { normalizer, temperature = 1 } = this.numbers;
    const weight = [view.text("weight"), (key) => this.weightOf(one, key)];
    if (!one.scores || !normalizer) return this.step("weights", this.reason("scores"), this.table(one, [weight]));
    const scores = Array.from(one.scores, (score) => score / temperature), seen = scores.filter((score) => !Number.isNaN(score));
    const score = [view.text("score"), (key) => digits(scores[key])];
    const sum = total(one.ranked.map(([, each]) => each));
    if (!seen.length) return this.step(normalizer, view.text("nothingVisible"), this.table(one, [score, weight]));
    if (normalizer === "softmax" || normalizer === "sink") {
      const { shift, sum: visible } = exponentials(seen);
      const sink = normalizer === "sink" ? Math.exp(-shift) : 0, name = shift ? `e^(s − ${digits(shift)})` : "e^s";
      const terms = [name, (key) => Number.isNaN(scores[key]) ? "0" : digits(Math.exp(scores[key] - shift))];
      const help = view.text(normalizer === "sink" ? "sinkHelp" : "softmaxHelp", { sum: digits(visible + sink), sink: digits(sink) });
      return this.step(normalizer, [help, shift ? view.text("shiftHelp", { shift: digits(shift) }) : ""].join(" "),
        this.table(one, [score, terms, [`÷ ${digits(visible + sink)}`, weight[1]]], ["Σ", "", digits(visible + sink), number(sum)]));
    }
    const columns = [score];
    if (normalizer === "sparsemax" || normalizer === "entmax15") {
      const half = normalizer === "entmax15" ? 2 : 1;
      const [[key, first] = [0, 0]] = one.ranked;
      const tau = scores[key] / half - (half === 2 ? Math.sqrt(first) : first);
      columns.push([half === 2 ? `s/2 − ${digits(tau)}` : `s − ${digits(tau)}`, (place) => digits(scores[place] / half - tau)]);
      return this.step(normalizer, view.text(`${normalizer}Help`, { tau: digits(tau) }), this.table(one, [...columns, weight], ["Σ", "", "", number(sum)]));
    }
    return this.step(normalizer, view.text(`${normalizer}Help`), this.table(one, [...columns, weight]));
  }

  weighted(one) {
    const { value } = one.tensors;
    const most = Math.max(...one.listed.map((key) => largest(value.row(one.head, key))), 0);
    return this.step("weighted", this.view.text("weightedHelp"), this.table(one, [
      [this.view.text("weight"), (key) => this.weightOf(one, key)],
      ["v", (key) => strip(value.row(one.head, key), "v", most)],
      [`${this.view.text("weight")} × v`, (key) => {
        const weight = this.view.map.cell(one.query, key) ?? 0;
        return strip(Float64Array.from(value.row(one.head, key), (each) => weight * each), `${this.view.text("weight")} × v`, most);
      }]]));
  }

  context(one) {
    return this.step("context", this.view.text("contextHelp"), strip(one.tensors.sums.row(one.head, one.query), this.view.text("context")));
  }

  /** The same query in every head, and the context vectors one after the other. */
  heads(one) {
    const { view } = this;
    const { sums } = one.tensors;
    if (this.maps.length < 2) return null;
    const cards = this.maps.map((map, head) => {
      const items = map.ranked(one.query).slice(0, 4).map(([key, weight]) =>
        element("li", {}, element("span", { class: "name", dir: "auto" }, tokenText(one.keys[key])), this.bar(weight)));
      return element("div", { class: view.heads.includes(head) ? "card chosen" : "card" },
        element("h4", {}, view.text("headShort", { head: view.headNumber(head) })), element("ol", { class: "ranked" }, ...items),
        sums ? strip(sums.row(head, one.query), view.text("context")) : null);
    });
    const joined = sums ? this.vector("concatenation", this.joinedContext(one)) : null;
    const step = this.step("joined", view.text("joinedHelp"), element("div", { class: "cards" }, ...cards), joined);
    step.classList.add("wide");
    return step;
  }

  joinedContext({ tensors: { sums }, query }) {
    return Float64Array.from(Array.from({ length: this.view.about.heads }, (_, head) => [...sums.row(head, query)]).flat());
  }

  output(one) {
    const { output, outputWeight, outputBias } = one.tensors;
    if (!output) return this.reason("output") ? element("p", { class: "small note" }, this.reason("output")) : null;
    const formula = `${this.view.text(this.maps.length > 1 ? "concatenation" : "context")} · W_O${outputBias ? " + b_O" : ""}`;
    return this.step("output", formula,
      outputWeight ? this.matrix({ ...one, head: 0 }, "outputWeight", "W_O", outputWeight, false) : null,
      this.vector("projected", output.row(0, one.query)));
  }

  /** The most likely next words, of a model that has them. */
  distribution(one) {
    const { view } = this;
    const ranked = view.payload.traces[view.trace].outputs?.[view.about.queries]?.[one.query];
    if (!ranked) return null;
    const items = ranked.map(([token, share]) => element("li", {}, element("span", { class: "name", dir: "auto" }, tokenText(token)), this.bar(share)));
    return this.step("distribution", view.text("distributionHelp"), element("ol", { class: "ranked" }, ...items));
  }

  vector(name, values) {
    const label = `${this.view.text(name)} (${values.length})`;
    return element("div", { class: name }, element("p", { class: "small" }, label), strip(values, label));
  }
}

customElements.define("regard-workflow", Workflow);
