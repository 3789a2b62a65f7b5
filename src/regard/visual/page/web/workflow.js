// <regard-workflow>: how attention is computed for one query, with the numbers of the model.

import { color } from "regard/color.js";
import { element, Panel } from "regard/panel.js";
import { digits, largest, strip } from "regard/vector.js";
import { number, tokenText } from "regard/texts.js";

const LISTED = 10; // keys
const ALL_HEADS = 8e6; // cells of a call whose heads are all unpacked to stand side by side

export class Workflow extends Panel {
  build() {
    this.chosen = element("p", { class: "chosen-query", "aria-live": "off" });
    this.steps = element("div", { class: "steps" });
    this.append(this.chosen, this.steps);
  }

  async update(changed) {
    if (changed.has("map")) await this.fetch();
    this.scheduleLater(this.draw);
  }

  /** Unpack what was recorded of this call, and the maps of its other heads. */
  async fetch() {
    const { payload, trace, call, about } = this.view;
    const name = `${trace}/${call}`;
    if (this.fetched === name && this.payload === payload) return;
    this.fetched = name;
    this.payload = payload;
    this.numbers = this.maps = null;
    const tensors = {};
    for (const [part, stored] of Object.entries(about.numbers?.tensors ?? {})) {
      tensors[part] = await payload.tensor(stored);
    }
    const isSmall = about.heads * about.rows * about.columns <= ALL_HEADS;
    const heads = Array.from({ length: isSmall ? about.heads : 0 }, (_, head) => head);
    const maps = await Promise.all(heads.map((head) => payload.map(trace, call, head)));
    if (this.fetched !== name) return;
    this.numbers = about.numbers ? { ...about.numbers, tensors } : null;
    this.maps = maps;
  }

  draw() {
    const { view } = this;
    if (this.fetched !== `${view.trace}/${view.call}` || !this.maps) return;
    const [queries, keys] = view.labels;
    const query = view.query ?? this.last ?? queries.length >> 1; // the first often sees itself alone
    this.last = query < queries.length ? query : 0;
    const one = { query: this.last, head: view.heads[0], queries, keys, tensors: this.numbers?.tensors ?? {} };
    one.ranked = view.map.ranked(one.query);
    one.key = view.key ?? one.ranked[0]?.[0] ?? 0;
    one.listed = one.ranked.slice(0, LISTED).map(([key]) => key).sort((a, b) => a - b);
    this.chosen.replaceChildren(element("b", { dir: "auto" }, tokenText(queries[one.query])),
      ...[view.about.name, view.headName].filter(Boolean).map((name) => ` · ${name}`));
    this.count = 0;
    const note = !this.numbers ? (view.about.noNumbers ?? "noNumbers") : view.heads.length > 1 ? "oneHead" : null;
    const parts = note
      ? [element("p", { class: "small note" }, view.text(note)), this.scores(one)]
      : [this.input(one), this.projections(one), this.compared(one), this.scoreProjections(one), this.pair(one),
        this.scores(one), this.sum(one)];
    this.steps.replaceChildren(...[...parts, this.joined(one), this.distribution(one)].filter(Boolean));
  }

  step(title, help, ...children) {
    return element("section", { class: "step" }, element("h3", {}, `${++this.count}. ${this.view.text(title)}`),
      help ? element("p", { class: "small" }, help) : null, ...children);
  }

  /** Why a step is missing, by the name of its tensor. */
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
    const rows = one.listed.map((index) => [one.keys[index], key.row(one.head, index)]);
    const most = Math.max(...rows.map(([, vector]) => largest(vector)), 0);
    return element("div", { class: "lines" }, own ? this.line(one.queries[one.query], own, largest(own), "query") : null,
      ...rows.map(([label, vector]) => this.line(label, vector, most, "key")));
  }

  input(one) {
    const { inputQuery, inputKey, inputValue, query, key } = one.tensors;
    if (!inputQuery) {
      return this.step("input", this.reason("inputQuery"), this.numbers.hasProjections ? null : this.vectors(one, query, key));
    }
    const help = this.view.text("inputHelp", { width: inputQuery.columns });
    const values = inputValue ? [element("h4", {}, this.view.text("value")), this.vectors(one, null, inputValue)] : [];
    return this.step("input", help, this.vectors(one, inputQuery, inputKey ?? inputQuery), ...values);
  }

  projections(one) {
    if (!this.numbers.hasProjections) return null; // the step before says so
    const { projectedQuery, projectedKey, query, key, value } = one.tensors;
    const q = projectedQuery ?? query;
    return this.step("projections", this.view.text("projectionsHelp", { width: q.columns }),
      element("h4", {}, "q = x·W_Q, k = x·W_K"), this.vectors(one, q, projectedKey ?? key),
      element("h4", {}, "v = x·W_V"), this.vectors(one, null, value));
  }

  /** Queries and keys where something happens to them between projection and score. */
  compared(one) {
    const { projectedQuery, projectedKey, query, key } = one.tensors;
    if (!projectedQuery && !projectedKey) return null;
    return this.step("compared", this.view.text("comparedHelp"), this.vectors(one, query, key));
  }

  scoreProjections(one) {
    const { left, right } = one.tensors;
    if (!left) return null;
    const help = this.numbers.form === "additive" ? "additiveHelp" : "dotHelp";
    return this.step("scoreProjections", this.view.text(help), this.vectors(one, left, right));
  }

  /** The score of one pair, from its vectors. */
  pair(one) {
    const { left, right, query, key, vector } = one.tensors;
    const { form, scale } = this.numbers;
    const name = tokenText(one.keys[one.key]);
    if (!form) return this.step("pair", this.view.text("pairOther", { key: name }));
    const a = (left ?? query).row(one.head, one.query), b = (right ?? key).row(one.head, one.key);
    const line = (label, values) => this.line(label, values, largest(values), "");
    let lines, score;
    if (form === "additive") {
      const w = vector.row(one.head, 0);
      const sums = Float32Array.from(a, (value, i) => value + b[i]);
      const bent = sums.map(Math.tanh), products = bent.map((value, i) => value * w[i]);
      lines = [line("W₁q + W₂k", sums), line("tanh", bent), line("w", w), line("w ∘ tanh", products)];
      score = `Σ = ${digits(total(products))}`;
    } else {
      const products = Float32Array.from(a, (value, i) => value * b[i]);
      lines = [line("q ∘ k", products)];
      const sum = total(products);
      score = `q·k = Σ = ${digits(sum)}` + (scale === 1 ? "" : `,  × ${digits(scale)} = ${digits(sum * scale)}`);
    }
    const help = this.view.text(form === "additive" ? "pairAdditive" : "pairDot", { key: name });
    return this.step("pair", help, element("div", { class: "lines" }, ...lines), element("p", { class: "result" }, score));
  }

  /** Every score of the query: the product, scaled, with bias, hidden or not, and its weight. */
  scores(one) {
    const { view } = this;
    const scores = one.tensors.scores && view.heads.length === 1 ? one.tensors.scores.row(one.head, one.query) : null;
    const isSoftmax = scores && this.numbers.isSoftmax;
    const isScaled = scores && this.numbers.form === "dot" && this.numbers.scale !== 1;
    const most = scores ? scores.reduce((high, score) => (score > high ? score : high), -Infinity) : 0;
    const product = (key) => {
      const a = (one.tensors.left ?? one.tensors.query).row(one.head, one.query);
      const b = (one.tensors.right ?? one.tensors.key).row(one.head, key);
      return digits(total(a.map((value, i) => value * b[i])));
    };
    const score = isScaled ? `× ${digits(this.numbers.scale)}` : view.text("score");
    const heading = [view.text("key"), ...(isScaled ? ["q·k"] : []), ...(scores ? [score + (this.numbers.hasBias ? ` + ${view.text("bias")}` : "")] : []),
      ...(isSoftmax ? [view.text("exponent")] : []), view.text("weight")];
    const listed = one.ranked.slice(0, LISTED);
    if (view.key !== null && !listed.some(([key]) => key === view.key)) listed.push([view.key, view.map.cell(one.query, view.key)]);
    const lines = listed.map(([key, weight]) => {
      const isHidden = scores && Number.isNaN(scores[key]);
      const cells = [element("th", { scope: "row", dir: "auto" }, tokenText(one.keys[key]))];
      if (isScaled) cells.push(element("td", {}, product(key)));
      if (scores) cells.push(element("td", {}, isHidden ? view.text("masked") : digits(scores[key])));
      if (isSoftmax) cells.push(element("td", {}, isHidden ? "0" : digits(Math.exp(scores[key] - most))));
      const bound = weight === null && view.text("below", { weight: number(view.map.bound(one.query, key)) });
      cells.push(element("td", {}, bound || this.bar(weight)));
      return element("tr", { class: key === view.key ? "chosen" : null }, ...cells);
    });
    let hidden = 0;
    if (scores) for (const each of scores) if (Number.isNaN(each)) hidden++;
    const help = [this.reason("scores"), hidden ? view.text("hiddenKeys", { count: hidden }) : scores ? view.text("noMask") : null];
    return this.step(scores ? "scores" : "weights", help.filter(Boolean).join(" "), element("div", { class: "scroll" }, element("table", {},
      element("thead", {}, element("tr", {}, ...heading.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...lines))));
  }

  bar(weight) {
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(1, weight) * 5}rem`;
    bar.style.background = color(this.view, weight);
    return element("span", { class: "weight" }, bar, number(weight));
  }

  sum(one) {
    const { view } = this;
    return this.step("sum", view.text("sumHelp"), strip(one.tensors.sums.row(one.head, one.query), view.text("sums")));
  }

  distribution(one) {
    const { view } = this;
    const ranked = view.payload.traces[view.trace].outputs?.[view.about.queries]?.[one.query];
    if (!ranked) return this.step("distribution", view.text("noDistribution"));
    const items = ranked.map(([token, share]) => element("li", {}, element("span", { class: "name", dir: "auto" }, tokenText(token)), this.bar(share)));
    return this.step("distribution", view.text("distributionHelp"), element("ol", { class: "ranked" }, ...items));
  }

  /** The same query in every head, their sums one after the other, and W_O. */
  joined(one) {
    const { view } = this;
    const { sums, output } = one.tensors;
    const after = [];
    if (sums) {
      const heads = Array.from({ length: view.about.heads }, (_, head) => sums.row(head, one.query));
      const joined = Float32Array.from(heads.flatMap((sum) => [...sum]));
      if (heads.length > 1) after.push(this.vector("concatenation", joined));
      after.push(output ? this.vector("projected", output.row(0, one.query)) : element("p", { class: "small" }, this.reason("output")));
    }
    if (this.maps.length < 2) return sums ? this.step("output", null, ...after) : null;
    const cards = this.maps.map((map, head) => {
      const items = map.ranked(one.query).slice(0, 4).map(([key, weight]) =>
        element("li", {}, element("span", { class: "name", dir: "auto" }, tokenText(one.keys[key])), this.bar(weight)));
      return element("div", { class: view.heads.includes(head) ? "card chosen" : "card" },
        element("h4", {}, view.text("headShort", { head: view.headNumber(head) })), element("ol", { class: "ranked" }, ...items),
        sums ? strip(sums.row(head, one.query), view.text("sums")) : null);
    });
    const step = this.step("joined", view.text("joinedHelp"), element("div", { class: "cards" }, ...cards), ...after);
    step.classList.add("wide");
    return step;
  }

  vector(name, values) {
    const label = `${this.view.text(name)} (${values.length})`;
    return element("div", { class: name }, element("p", { class: "small" }, label), strip(values, label));
  }
}

function total(values) {
  let sum = 0;
  for (const value of values) sum += value;
  return sum;
}

customElements.define("regard-workflow", Workflow);
