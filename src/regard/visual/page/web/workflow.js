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
    this.heads = element("div", { class: "all-heads" });
    this.append(this.chosen, this.steps, this.heads);
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
    const query = view.query ?? this.last ?? 0;
    this.last = query < queries.length ? query : 0;
    const one = { query: this.last, head: view.heads[0], queries, keys, tensors: this.numbers?.tensors ?? {} };
    one.ranked = view.map.ranked(one.query);
    one.key = view.key ?? one.ranked[0]?.[0] ?? 0;
    one.listed = one.ranked.slice(0, LISTED).map(([key]) => key).sort((a, b) => a - b);
    this.chosen.replaceChildren(element("b", { dir: "auto" }, tokenText(queries[one.query])),
      ` · ${view.about.name} · ${view.headName}`);
    const isMean = view.heads.length > 1;
    const parts = this.numbers && !isMean
      ? [this.states(one), this.projections(one), this.pair(one), this.scores(one), this.context(one)]
      : [this.numbers ? null : element("p", { class: "small note" }, view.text("notRecorded")), this.scores(one)];
    this.steps.replaceChildren(...[...parts, this.distribution(one)].filter(Boolean));
    this.heads.replaceChildren(...this.side(one));
  }

  step(title, help, ...children) {
    return element("section", { class: "step" },
      element("h3", {}, this.view.text(title)), help ? element("p", { class: "small" }, help) : null, ...children);
  }

  vectors(one, query, key) {
    const rows = one.listed.map((index) => [one.keys[index], key.row(one.head, index)]);
    const own = query.row(one.head, one.query);
    const most = Math.max(...rows.map(([, vector]) => largest(vector)), 0);
    const line = (label, vector, top, kind) => element("div", { class: `line ${kind}` },
      element("span", { class: "name", dir: "auto" }, tokenText(label)), strip(vector, label, top));
    return element("div", { class: "lines" },
      line(one.queries[one.query], own, largest(own), "query"), ...rows.map(([label, vector]) => line(label, vector, most, "key")));
  }

  states(one) {
    const { query, key } = one.tensors;
    return this.step("states", this.view.text("statesHelp"), this.vectors(one, query, key));
  }

  projections(one) {
    const { projectedQuery, projectedKey } = one.tensors;
    if (!projectedQuery) return null;
    return this.step("projections", this.view.text(this.numbers.form), this.vectors(one, projectedQuery, projectedKey));
  }

  /** The score of one pair, from its vectors. */
  pair(one) {
    const { projectedQuery, projectedKey, vector } = one.tensors;
    if (!projectedQuery) return null;
    const left = projectedQuery.row(one.head, one.query), right = projectedKey.row(one.head, one.key);
    const isAdditive = this.numbers.form === "additive";
    const weight = isAdditive ? vector.row(one.head, 0) : null;
    const met = Float32Array.from(left, (value, i) => (isAdditive ? Math.tanh(value + right[i]) : value * right[i]));
    let score = 0;
    for (let i = 0; i < met.length; i++) score += isAdditive ? met[i] * weight[i] : met[i];
    const { scale } = this.numbers;
    const name = tokenText(one.keys[one.key]);
    const help = this.view.text(isAdditive ? "pairAdditive" : "pairDot", { key: name, scale: digits(scale) });
    return this.step("pair", help, strip(met, name), isAdditive ? strip(weight, "w") : null,
      element("p", { class: "result" }, `${this.view.text("score")} = ${digits(score * scale)}`));
  }

  scores(one) {
    const { view } = this;
    const scores = one.tensors.scores && view.heads.length === 1 ? one.tensors.scores.row(one.head, one.query) : null;
    const isSoftmax = scores && this.numbers.normalizer === "softmax";
    let most = -Infinity;
    if (scores) for (const score of scores) if (score > most) most = score;
    const heading = [view.text("key"), ...(scores ? [view.text("score")] : []), ...(isSoftmax ? [view.text("exponent")] : []), view.text("weight")];
    const listed = one.ranked.slice(0, LISTED);
    if (view.key !== null && !listed.some(([key]) => key === view.key)) listed.push([view.key, view.map.cell(one.query, view.key)]);
    const lines = listed.map(([key, weight]) => {
      const isHidden = scores && Number.isNaN(scores[key]);
      const cells = [element("th", { scope: "row", dir: "auto" }, tokenText(one.keys[key]))];
      if (scores) cells.push(element("td", {}, isHidden ? view.text("masked") : digits(scores[key])));
      if (isSoftmax) cells.push(element("td", {}, isHidden ? "0" : digits(Math.exp(scores[key] - most))));
      const bound = weight === null && view.text("below", { weight: number(view.map.bound(one.query, key)) });
      cells.push(element("td", {}, bound || this.bar(weight)));
      return element("tr", { class: key === view.key ? "chosen" : null }, ...cells);
    });
    const title = scores ? "scores" : "weights";
    return this.step(title, null, element("table", {},
      element("thead", {}, element("tr", {}, ...heading.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...lines)));
  }

  bar(weight) {
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${Math.min(1, weight) * 5}rem`;
    bar.style.background = color(this.view, weight);
    return element("span", { class: "weight" }, bar, number(weight));
  }

  /** Σ weight · value of one head. */
  sum(map, head, query) {
    const { value } = this.numbers.tensors;
    const sum = new Float32Array(value.columns);
    for (const [key, weight] of map.ranked(query)) {
      const row = value.row(head, key);
      for (let i = 0; i < sum.length; i++) sum[i] += weight * row[i];
    }
    return sum;
  }

  context(one) {
    return this.step("context", this.view.text("contextHelp"), strip(this.sum(this.view.map, one.head, one.query), this.view.text("sums")));
  }

  distribution(one) {
    const { view } = this;
    const rows = view.payload.traces[view.trace].outputs?.[view.about.queries];
    const ranked = rows?.[one.query];
    if (!ranked) return null;
    const items = ranked.map(([token, share]) => element("li", {}, element("span", { class: "name", dir: "auto" }, tokenText(token)), this.bar(share)));
    return this.step("distribution", view.text("distributionHelp"), element("ol", { class: "ranked" }, ...items));
  }

  /** The same query in every head. */
  side(one) {
    const { view } = this;
    if (this.maps.length < 2) return [];
    const sums = [];
    const cards = this.maps.map((map, head) => {
      const items = map.ranked(one.query).slice(0, 4).map(([key, weight]) =>
        element("li", {}, element("span", { class: "name", dir: "auto" }, tokenText(one.keys[key])), this.bar(weight)));
      const card = element("section", { class: view.heads.includes(head) ? "step chosen" : "step" },
        element("h4", {}, view.text("headShort", { head: view.headNumber(head) })), element("ol", { class: "ranked" }, ...items));
      if (this.numbers) {
        sums.push(this.sum(map, head, one.query));
        card.append(element("p", { class: "small" }, view.text("sums")), strip(sums[head], view.text("sums")));
      }
      return card;
    });
    const after = [];
    if (sums.length) {
      const joined = Float32Array.from(sums.flatMap((sum) => [...sum]));
      after.push(element("p", { class: "small" }, view.text("concatenation")), strip(joined, view.text("concatenation")));
      const { output } = one.tensors;
      if (output) {
        after.push(element("p", { class: "small" }, view.text("projected")), strip(output.row(0, one.query), "W_O"));
      }
    }
    return [element("h3", {}, view.text("allHeads")), element("p", { class: "small" }, view.text("allHeadsHelp")),
      element("div", { class: "cards" }, ...cards), ...after];
  }
}

customElements.define("regard-workflow", Workflow);
