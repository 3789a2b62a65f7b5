// <studio-edit>: hide a word, a head or a cell, or set a weight, and decode again.

import { element } from "regard/panel.js";
import { tokenText } from "regard/texts.js";
import { number } from "regard/vector.js";
import { post } from "studio/api.js";
import { digits, InputRoom } from "studio/input_room.js";

export class EditRoom extends InputRoom {
  sections = ["strip", "heatmap"];
  tasks = ["translate", "language", "pretrained"]; // whose predictions are computed by attention that can be edited

  parts() {
    this.actions = [];
    this.undone = [];
    this.afterViews = document.createElement("regard-views");
    this.words = element("div", { class: "chips", role: "group", "aria-label": this.text("hideWords") });
    this.headButtons = element("div", { class: "chips", role: "group", "aria-label": this.text("hideHeads") });
    this.cell = element("div", { class: "cell-tools", hidden: true });
    this.undoButton = this.button("undo", () => this.undo());
    this.redoButton = this.button("redo", () => this.redo());
    this.resetButton = this.button("reset", () => { this.undone = []; this.apply([]); });
    this.list = element("ul", { class: "edits", "aria-label": this.text("edits") });
    this.outputs = [element("p", { class: "output", dir: "auto" }), element("p", { class: "output", dir: "auto", "aria-live": "polite" })];
    this.changes = element("tbody");
    const table = element("table", { class: "changes" },
      element("caption", {}, this.text("changesHelp")),
      element("thead", {}, element("tr", {}, ...["word", "before", "after", "change"].map((key) => element("th", { scope: "col" }, this.text(key))))),
      this.changes);
    this.tools = element("section", { class: "edit-tools", "aria-label": this.text("edits"), hidden: true },
      element("div", { class: "heading" }, element("h3", {}, this.text("edits")), element("div", { class: "files" }, this.undoButton, this.redoButton, this.resetButton)),
      element("h4", {}, this.text("hideWords")), this.words, element("h4", {}, this.text("hideHeads")), this.headButtons,
      element("h4", {}, this.text("setWeight")), element("p", { class: "small" }, this.text("setWeightHelp")), this.cell, this.list);
    const pane = (key, output, views, ...more) => element("section", { class: "pane", "aria-label": this.text(key) }, element("div", { class: "heading" }, element("h3", {}, this.text(key)), ...more), output, views);
    this.panes = element("div", { class: "panes", hidden: true }, pane("before", this.outputs[0], this.views), pane("after", this.outputs[1], this.afterViews, this.files()));
    this.table = element("section", { class: "answer", hidden: true }, element("h3", {}, this.text("changes")), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("changes") }, table));
    this.append(this.heading(), this.form, this.tools, this.panes, this.table);
    const kept = this.given.get("edits");
    if (kept) {
      try {
        this.actions = JSON.parse(kept).map((edits) => ({ edits }));
      } catch { /* an address that was cut off */ }
    }
  }

  reset() {
    if (this.looked) this.actions = [];
    this.looked = null;
    this.afterViews.replaceChildren();
    this.afterViews.view = null;
    for (const part of [this.tools, this.panes, this.table]) part.hidden = true;
  }

  cleared() {
    this.reset();
  }

  get edits() {
    return this.actions.flatMap(({ edits }) => edits);
  }

  get request() {
    return { run: this.run, text: this.input.value, edits: this.edits };
  }

  typed() {
    if (this.actions.length && this.looked) this.actions = []; // positions of another text
    super.typed();
  }

  chooseExample(value) {
    if (this.looked) this.actions = [];
    return super.chooseExample(value);
  }

  async update() {
    const kept = this.actions.length ? JSON.stringify(this.actions.map(({ edits }) => edits)) : null;
    this.remember({ run: this.run, text: this.input.value, edits: kept });
    if (!this.input.value.trim()) return this.cleared();
    try {
      const found = await this.latest.run((signal) => post("/edit", this.request, { signal }));
      if (!found) return;
      this.problem(null);
      await this.showBoth(found);
    } catch (error) {
      this.problem(error);
      if (error.status === 0) this.retry();
    }
  }

  async showBoth({ before, after, changes, similarity }) {
    const isNew = this.looked?.text !== before.text;
    this.looked = before;
    for (const part of [this.tools, this.panes]) part.hidden = false;
    this.table.hidden = !changes.length;
    this.outputs[0].textContent = before.output;
    this.outputs[1].textContent = [after.output, similarity === null ? "" : this.text("similarity", { value: similarity.toFixed(4) })].filter(Boolean).join(" · ");
    this.outputs[1].classList.toggle("changed", after.output !== before.output);
    await Promise.all([this.showViews(this.views, before.page), this.showViews(this.afterViews, after.page)]);
    this.data = before.page?.data;
    if (isNew && this.data) this.chips(this.data);
    this.mark();
    this.changes.replaceChildren(...changes.map((change) => this.change(change)));
    this.dataset.drawn = String(performance.now());
  }

  change({ token, before, after }) {
    const difference = after - before;
    const bar = element("span", { class: difference < 0 ? "bar worse" : "bar better", "aria-hidden": "true" });
    bar.style.width = `${Math.min(8, Math.abs(difference)) * 0.8}rem`;
    return element("tr", {}, element("th", { scope: "row", dir: "auto" }, tokenText(token)), element("td", {}, digits(before)), element("td", {}, digits(after)),
      element("td", {}, bar, `${difference >= 0.005 ? "+" : ""}${digits(difference)}`));
  }

  /** A button for every source word and every head. */
  chips(data) {
    const { calls } = data.traces.at(-1);
    const reading = calls.filter((call) => call.keys !== "prefix" && call.keys !== "target");
    const source = reading.find((call) => call.queries !== call.keys) ?? reading[0];
    const labels = source ? data.labels[source.keyLabels] : [];
    const same = reading.filter((call) => call.keys === source?.keys);
    const chip = (text, edits) => {
      const button = element("button", { type: "button", class: "chip", "aria-pressed": "false", onclick: () => this.toggle(edits) }, text);
      button.dataset.action = JSON.stringify(edits);
      return button;
    };
    this.words.replaceChildren(...labels.map((label, key) =>
      chip(tokenText(label), same.map((call) => ({ layer: call.name, keys: [key] })))));
    this.headButtons.replaceChildren(...calls.flatMap((call) => Array.from({ length: call.heads }, (_, head) =>
      chip(`${call.shortName}·${head}`, [{ layer: call.name, heads: [head] }]))));
  }

  /** A cell that is pinned in the map before can be hidden or weighted. */
  viewed(view, changed) {
    if (view !== this.views.view || !(changed.has("locked") || changed.has("query") || changed.has("key"))) return;
    const { query, key } = view;
    if (!view.locked || query === null || key === null) return;
    const [queries, keys] = view.labels;
    const now = view.map.cell(query, key) ?? 0;
    const names = { query: tokenText(queries[query]), key: tokenText(keys[key]) };
    const slider = element("input", { type: "range", min: "0", max: "1", step: "0.01", value: String(now), id: "studio-weight" });
    const output = element("output", { for: slider.id }, number(now));
    const set = (weight) => {
      const edit = { layer: view.about.name, heads: [...view.heads], cells: [[query, key]] };
      if (weight > 0) edit.weight = weight;
      const isSame = ({ edits }) => edits[0].cells?.[0]?.join() === [query, key].join() && edits[0].layer === edit.layer;
      this.undone = [];
      this.apply([...this.actions.filter((each) => !isSame(each)), { edits: [edit] }]);
    };
    slider.addEventListener("input", () => { output.textContent = number(Number(slider.value)); });
    slider.addEventListener("change", () => set(Number(slider.value)));
    this.cell.hidden = false;
    this.cell.replaceChildren(element("label", { for: slider.id }, this.text("weightOf", names)), slider, output,
      this.button("hideCell", () => set(0)));
  }

  toggle(edits) {
    const key = JSON.stringify(edits);
    const rest = this.actions.filter((action) => JSON.stringify(action.edits) !== key);
    this.undone = [];
    this.apply(rest.length < this.actions.length ? rest : [...this.actions, { edits }]);
  }

  undo() {
    if (!this.actions.length) return;
    this.undone.push(this.actions.at(-1));
    this.apply(this.actions.slice(0, -1));
  }

  redo() {
    if (this.undone.length) this.apply([...this.actions, this.undone.pop()]);
  }

  apply(actions) {
    this.actions = actions;
    this.mark();
    return this.update();
  }

  mark() {
    const active = new Set(this.actions.map(({ edits }) => JSON.stringify(edits)));
    for (const chip of this.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", active.has(chip.dataset.action));
    this.undoButton.disabled = this.resetButton.disabled = !this.actions.length;
    this.redoButton.disabled = !this.undone.length;
    this.list.replaceChildren(...this.actions.map((action) => element("li", {}, this.describe(action.edits[0]))));
  }

  /** An edit in words. */
  describe({ layer, heads, keys, cells, weight }) {
    const call = this.data?.traces.at(-1).calls.find(({ name }) => name === layer);
    const [queries, words] = call ? [this.data.labels[call.queryLabels], this.data.labels[call.keyLabels]] : [[], []];
    const label = (labels, place) => tokenText(labels[place] ?? `#${place}`);
    if (cells) {
      const [[query, key]] = cells;
      const names = { query: label(queries, query), key: label(words, key), weight: number(weight ?? 0) };
      return this.text(weight ? "setsCell" : "hidesCell", names);
    }
    return keys ? this.text("hidesWord", { word: label(words, keys[0]) }) : this.text("hidesHead", { layer, head: heads?.[0] });
  }
}

customElements.define("studio-edit", EditRoom);
