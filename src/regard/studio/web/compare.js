// <studio-compare>: one input through several runs or mechanisms, side by side.

import { attend, letterVectors, MASKS, plainAdditive } from "regard/attention.js";
import { Computed, entropy } from "regard/computed.js";
import { element } from "regard/panel.js";
import { Payload } from "regard/payload.js";
import { tokenText } from "regard/texts.js";
import { meanOf } from "regard/weights.js";
import { post } from "studio/api.js";
import { InputRoom } from "studio/input_room.js";

const MOST = 4;
const MOST_WORDS = 32;
const SCORES = ["dot", "scaled_dot", "cosine", "additive"];
const MECHANISMS = {
  ...Object.fromEntries(SCORES.map((score) => [`score-${score}`, { score }])),
  "mask-causal": { mask: MASKS.causal() }, "mask-window": { mask: MASKS.window(1, 1) },
  ...Object.fromEntries(["sparsemax", "entmax15", "hard", "sigmoid", "sink"].map((normalize) => [`normalizer-${normalize}`, { normalize }])),
};

export class CompareRoom extends InputRoom {
  sections = ["strip", "heatmap"];

  /** Runs and mechanisms to choose from; without two runs, two mechanisms are chosen. */
  runPicker() {
    const runs = this.studio.runs.filter((run) => run.is_trained);
    const names = [...runs.map((run) => run.name), ...Object.keys(MECHANISMS)];
    const wanted = ["runs", "mechanisms"].flatMap((key) => (this.given.get(key) ?? "").split(",")).filter((name) => names.includes(name));
    const alike = runs.filter((run) => run.task === runs[0].task).map((run) => run.name).slice(0, 2);
    const first = alike.length > 1 ? alike : ["score-scaled_dot", "normalizer-sparsemax"];
    this.chosen = wanted.length > 1 ? wanted.slice(0, MOST) : first;
    const box = (value, ...label) => {
      const input = element("input", { type: "checkbox", value, checked: this.chosen.includes(value), onchange: () => this.check(input) });
      return element("label", { class: "check" }, input, ...label);
    };
    const problem = element("p", { class: "problem", role: "alert", hidden: true });
    const ofRuns = runs.map((run) => box(run.name, ` ${run.name} `, element("span", { class: "small" }, this.about(run))));
    const ofMechanisms = element("details", { open: this.chosen.some(isMechanism) }, element("summary", {}, this.text("mechanisms")),
      element("p", { class: "small" }, this.text("mechanismsHelp")), element("div", { class: "checks" }, ...Object.keys(MECHANISMS).map((name) => box(name, ` ${this.text(name)}`))));
    const field = element("fieldset", { class: "control runs" }, element("legend", {}, this.text("chooseRuns")), ...ofRuns, ofMechanisms, problem);
    field.dataset.field = "runs";
    return { field, selected: this.chosen.find((name) => !isMechanism(name)) ?? runs[0]?.name ?? null };
  }

  chooseRun(run, text) {
    if (run && !this.chosen.every(isMechanism)) return super.chooseRun(run, text);
    this.example = null;
    this.exampleSlot.hidden = true;
    this.input.placeholder = this.text("type-words");
    this.input.value = text ?? this.text("exampleWords");
    return this.update();
  }

  /** Examples are those of the first run; one that cannot be loaded says so among the others. */
  failed() {
    this.exampleSlot.hidden = true;
    return this.update();
  }

  check(box) {
    if (box.checked && this.chosen.length === MOST) {
      box.checked = false;
      return this.problem({ message: this.text("fourRuns"), field: "runs", status: 422 });
    }
    this.chosen = box.checked ? [...this.chosen, box.value] : this.chosen.filter((name) => name !== box.value);
    return this.update();
  }

  parts() {
    this.panes = element("div", { class: "panes" });
    this.table = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("compareTable") });
    this.difference = element("section", { class: "answer", hidden: true });
    this.append(this.heading(), this.form, this.table, this.panes, this.difference);
  }

  async update() {
    const [runs, mechanisms] = [this.chosen.filter((name) => !isMechanism(name)), this.chosen.filter(isMechanism)];
    this.remember({ runs: runs.join(","), mechanisms: mechanisms.join(","), text: this.input.value, run: null });
    if (!this.input.value.trim()) return this.cleared();
    if (this.chosen.length < 2) return this.problem({ message: this.text("twoRuns"), field: "runs", status: 422 });
    const isNew = runs.filter((name) => !this.shown?.has(name));
    if (isNew.length) this.loading(isNew.join(", "));
    try {
      const given = { runs, text: this.input.value };
      const found = runs.length ? await this.latest.run((signal) => post("/compare", given, { signal })) : { compared: [] };
      if (!found) return;
      this.status.hidden = true;
      this.problem(null);
      await this.showAll([...found.compared, ...mechanisms.map((name) => this.mechanism(name, given.text))]);
    } catch (error) {
      this.status.hidden = true;
      this.problem(error);
      if (error.status === 0) this.retry();
    }
  }

  /** How the words of a text attend to each other by a mechanism. */
  mechanism(name, text) {
    const words = text.split(/\s+/).filter(Boolean);
    const empty = { name, is_mechanism: true, metrics: {}, model: "" };
    if (words.length < 2 || words.length > MOST_WORDS) return { ...empty, error: this.text("wordCount", { most: MOST_WORDS, count: words.length }) };
    const start = performance.now(), vectors = letterVectors(words), options = { ...MECHANISMS[name] };
    if (options.score === "additive") options.parameters = plainAdditive(vectors[0].length);
    const result = attend(vectors, vectors, vectors, options);
    const payload = new Computed({ name, sides: ["word", "word"], labels: [words, words], heads: [result], options,
      vectors: { query: [vectors], key: [vectors], value: [vectors] } });
    return { ...empty, error: null, payload, entropy: entropy(result.weights), milliseconds: performance.now() - start };
  }

  cleared() {
    this.panes.replaceChildren(this.empty("lookEmpty"));
    this.table.replaceChildren();
    this.difference.hidden = true;
  }

  async showAll(compared) {
    this.rows(compared);
    this.shown ??= new Map();
    const panes = [];
    for (const { name, error, looked, payload } of compared) {
      if (!this.shown.has(name)) this.shown.set(name, document.createElement("regard-views"));
      const views = this.shown.get(name);
      const pane = element("section", { class: "pane", "aria-label": this.title(name) }, element("h3", {}, this.title(name)), element("p", { class: "output", dir: "auto", hidden: isMechanism(name) }, looked?.output ?? ""));
      pane.append(error ? element("p", { class: "problem" }, error) : views);
      panes.push([pane, views, looked, payload]);
    }
    this.panes.replaceChildren(...panes.map(([pane]) => pane));
    for (const [, views, looked, payload] of panes) {
      if (payload) await this.showPayload(views, payload);
      else if (looked) await this.showViews(views, looked.page);
    }
    await this.differ(compared);
    this.dataset.drawn = String(performance.now());
  }

  viewed() {}

  title(name) {
    return isMechanism(name) ? this.text(name) : name;
  }

  rows(compared) {
    const quality = (metrics) => Object.entries(metrics).filter(([name]) => name !== "loss").slice(0, 2).map(([name, value]) => `${name} ${value.toFixed(3)}`).join(", ");
    const hasRuns = compared.some((each) => !each.is_mechanism);
    const columns = {
      model: (each) => each.is_mechanism && hasRuns ? this.text("mechanism") : each.model,
      output: (each) => each.looked?.output ?? each.error ?? "",
      quality: (each) => quality(each.metrics),
      time: (each) => each.error ? "" : `${(each.looked ?? each).milliseconds.toFixed(0)} ms`,
      entropy: (each) => each.error ? "" : each.entropy === null ? this.text("noAttentionShort") : each.entropy.toFixed(2),
    };
    const filled = Object.entries(columns).filter(([, write]) => compared.some(write));
    this.table.replaceChildren(element("table", {},
      element("caption", {}, this.text("compareTable")),
      element("thead", {}, element("tr", {}, ...[hasRuns ? "run" : "mechanism", ...filled.map(([key]) => key)].map((key) => element("th", { scope: "col" }, this.text(key))))),
      element("tbody", {}, ...compared.map((each) => element("tr", {}, element("th", { scope: "row" }, this.title(each.name)),
        ...filled.map(([, write]) => element("td", { dir: "auto" }, write(each))))))));
  }

  /** The mean maps of the first two that attend from and to the same tokens, and their difference. */
  async differ(compared) {
    const ready = [];
    for (const { name, is_mechanism: isOwn, same_output: page, payload: own } of compared) {
      if (!page && !own) continue;
      const payload = own ?? new Payload(page.data, (chunk) => page.chunks[chunk]);
      const { calls } = payload.traces[0];
      const maps = [];
      let labels = null;
      for (const [index, call] of calls.entries()) {
        if (call.kind !== "dense" || !(isOwn || (call.queries === "target" && call.keys === "source"))) continue;
        labels = payload.labels(call);
        for (let head = 0; head < call.heads; head++) maps.push(await payload.map(0, index, head));
      }
      if (maps.length) ready.push({ name: this.title(name), isOwn, labels, map: meanOf(maps) });
    }
    const isSame = (one, other) => one !== other && [0, 1].every((side) => one.labels[side].join("\n") === other.labels[side].join("\n"));
    const a = ready.find((one) => ready.some((other) => isSame(one, other)));
    const b = a && ready.find((other) => isSame(a, other));
    this.difference.hidden = false;
    const title = element("h3", {}, this.text("difference"));
    if (!b) return this.difference.replaceChildren(title, element("p", { class: "small" }, this.text("noDifference")));
    const rows = Array.from({ length: a.map.rows }, (_, query) => {
      const cells = Array.from({ length: a.map.columns }, (_, key) => {
        const change = b.map.cell(query, key) - a.map.cell(query, key);
        const cell = element("td", { title: `${tokenText(a.labels[0][query])} → ${tokenText(a.labels[1][key])}: ${change.toFixed(2)}` }, Math.abs(change) >= 0.05 ? change.toFixed(1).replace("-", "−") : "");
        cell.style.backgroundColor = `color-mix(in srgb, ${change < 0 ? "var(--accent)" : "var(--other)"} ${Math.round(100 * Math.min(1, Math.abs(change)))}%, transparent)`;
        return cell;
      });
      return element("tr", {}, element("th", { scope: "row", dir: "auto" }, tokenText(a.labels[0][query])), ...cells);
    });
    const head = element("tr", {}, element("td"), ...a.labels[1].map((label) => element("th", { scope: "col", dir: "auto" }, tokenText(label))));
    return this.difference.replaceChildren(title, element("p", { class: "small" }, a.isOwn ? "" : `${this.text("sameOutput")} `, this.text("differenceHelp", { first: a.name, second: b.name })),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("difference") }, element("table", { class: "difference" }, element("thead", {}, head), element("tbody", {}, ...rows))));
  }
}

function isMechanism(name) {
  return name in MECHANISMS;
}

customElements.define("studio-compare", CompareRoom);
