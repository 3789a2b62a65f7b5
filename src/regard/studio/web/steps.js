// <studio-workflow>: the calculation step by step, of a model or of numbers written by hand.

import { attend, MASKS, plainAdditive } from "regard/attention.js";
import { Computed } from "regard/computed.js";
import { element } from "regard/panel.js";
import { ApiError, post } from "studio/api.js";
import { InputRoom } from "studio/input_room.js";

const FREE = {
  query: [[1, 0, 1], [0, 2, 0]],
  key: [[1, 0, 1], [0, 2, 0], [1, 1, 0], [0, 0, 1]],
  value: [[1, 0], [0, 1], [0.5, 0.5], [-1, 1]],
};
const CHOICES = {
  score: ["dot", "scaled_dot", "cosine", "additive"],
  mask: ["none", "causal", "window"],
  normalizer: ["softmax", "sparsemax", "entmax15", "hard", "sigmoid", "sink"],
};
const FORMULAS = {
  dot: "q · k", scaled_dot: "q · k / √d", cosine: "cos(q, k)", additive: "1ᵀ tanh(q + k)",
  softmax: "softmax", sparsemax: "sparsemax", entmax15: "1.5-entmax", hard: "one-hot argmax", sigmoid: "σ", sink: "softmax₁",
};
const VISIBLE = { causal: MASKS.causal(), window: MASKS.window(1, 1) };

/** The condition of a mask for `queries` and `keys`: the last query is at the last key. */
function maskFormula(mask, queries, keys) {
  if (mask === "none") return "";
  const shift = keys - queries, place = !shift ? "i" : shift > 0 ? `i + ${shift}` : `i − ${-shift}`;
  return ` + M, ${mask === "causal" ? `j ≤ ${place}` : `|${place} − j| ≤ 1`}`;
}

export class WorkflowRoom extends InputRoom {
  sections = ["strip", "workflow", "heads", "settings"];

  async build() {
    const isFree = this.given.get("mode") === "free" || !this.studio.runs.some((run) => run.is_trained);
    const tab = (mode) => element("button", {
      type: "button", "aria-pressed": String((mode === "free") === isFree), onclick: () => this.mode(mode),
    }, this.text(`mode-${mode}`));
    this.tabs = element("div", { class: "tabs", role: "group", "aria-label": this.text("modes") }, tab("model"), tab("free"));
    if (isFree) return this.buildFree();
    return super.build();
  }

  mode(mode) {
    location.hash = mode === "free" ? "#/workflow?mode=free" : `#/workflow?mode=model`;
  }

  parts() {
    this.fields = { mode: "model" };
    this.options = { scale: Number(this.given.get("scale") ?? 1) || 1 };
    for (const [name, choices] of Object.entries(CHOICES)) {
      this.options[name] = choices.includes(this.given.get(name)) ? this.given.get(name) : "own";
    }
    this.append(this.heading(), this.tabs, this.form, element("div", { class: "form" }, ...this.pickers(["own"])),
      this.files(), this.views);
  }

  /** Menus of scores, masks and normalizers, and a slider of the scale. */
  pickers(first) {
    const menus = Object.entries(CHOICES).map(([name, choices]) => this.control(name, this.select(
      [...first, ...choices].map((choice) => [choice, this.text(choice === "own" ? "own" : `${name}-${choice}`)]),
      this.options[name], (value) => this.changeOptions({ [name]: value }))));
    const scale = element("input", { type: "range", min: "0.1", max: "5", step: "0.1", value: String(this.options.scale),
      oninput: () => { output.textContent = scale.value; this.changeOptions({ scale: Number(scale.value) }); } });
    const output = element("output", {}, String(this.options.scale));
    const field = this.control("scale", scale);
    field.append(output);
    return [...menus, field];
  }

  changeOptions(options) {
    Object.assign(this.options, options);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.isFree ? this.updateFree() : this.update(), 30);
  }

  get isOwn() {
    const { scale, ...names } = this.options;
    return scale === 1 && Object.values(names).every((name) => name === "own");
  }

  /** Whether the head of the model attends in its own way or in another, the views show it. */
  async update() {
    if (this.isOwn || !this.input.value.trim()) return super.update();
    this.remember({ run: this.run, text: this.input.value, ...this.options });
    try {
      const { name, head } = this.place ?? await this.firstPlace();
      const given = { run: this.run, text: this.input.value, layer: name, head, ...this.options };
      const found = await this.latest.run((signal) => post("/attend", given, { signal }));
      if (!found) return null;
      this.problem(null);
      await this.showViews(this.views, found);
      this.dataset.drawn = String(performance.now());
    } catch (error) {
      this.problem(error, "score");
    }
    return null;
  }

  /** The layer and head that the model's own views start with. */
  async firstPlace() {
    const looked = await post("/look", this.request);
    if (!looked.page) throw new ApiError(this.text("noAttention"), { status: 422 });
    const { data } = looked.page;
    return { name: data.traces.at(-1).calls[data.call].name, head: data.heads[0] };
  }

  reset() {
    this.place = null;
  }

  viewed(view, changed) {
    super.viewed(view, changed);
    if (this.isOwn) this.place = { name: view.about.name, head: view.heads[0] };
  }

  cleared() {
    this.views.replaceChildren(this.empty("lookEmpty"));
    this.views.view = null;
  }

  async show(looked) {
    await this.showViews(this.views, looked.page);
    const { view } = this.views;
    if (view && !this.place) this.place = { name: view.about.name, head: view.heads[0] };
    this.dataset.drawn = String(performance.now());
  }

  // ------------------------------------------------------------------ free mode

  async buildFree() {
    this.isFree = true;
    this.values = {};
    for (const name of Object.keys(FREE)) {
      try {
        this.values[name] = JSON.parse(this.given.get(name)) ?? FREE[name];
      } catch {
        this.values[name] = FREE[name];
      }
      if (!isMatrix(this.values[name])) this.values[name] = FREE[name];
    }
    this.options = { scale: Number(this.given.get("scale") ?? 1) || 1 };
    for (const [name, choices] of Object.entries(CHOICES)) {
      this.options[name] = choices.includes(this.given.get(name)) ? this.given.get(name) : choices[name === "score" ? 1 : 0];
    }
    this.formula = element("p", { class: "formula" });
    this.matrices = element("div", { class: "matrices" });
    this.result = element("div", { class: "matrices" });
    this.views = document.createElement("regard-views");
    this.append(this.heading(), this.tabs, element("div", { class: "form" }, ...this.pickers([])), this.formula, this.matrices, this.result, this.views);
    this.drawMatrices();
    await this.updateFree();
  }

  drawMatrices() {
    const tables = Object.entries(this.values).map(([name, rows]) => {
      const body = rows.map((row, i) => element("tr", {}, ...row.map((value, j) => {
        const input = element("input", { type: "number", step: "0.1", min: "-1000000", max: "1000000", value: String(value), "aria-label": this.text("entry", { name: this.text(`matrix-${name}`), row: i + 1, column: j + 1 }),
          oninput: () => {
            const typed = Number(input.value);
            if (input.value === "" || !Number.isFinite(typed)) return;
            this.values[name][i][j] = typed;
            this.changeOptions({});
          } });
        return element("td", {}, input);
      })));
      const problem = element("p", { class: "problem", role: "alert", hidden: true });
      const box = element("div", { class: "matrix" }, element("h3", {}, this.text(`matrix-${name}`)),
        element("table", {}, element("tbody", {}, ...body)),
        element("div", { class: "tools" },
          this.sizer(name, "addRow", () => rows.push(rows[0].map(() => 0))), this.sizer(name, "removeRow", () => rows.length > 1 && rows.pop()),
          this.sizer(name, "addColumn", () => rows.forEach((row) => row.push(0))), this.sizer(name, "removeColumn", () => rows[0].length > 1 && rows.forEach((row) => row.pop()))),
        problem);
      box.dataset.field = name;
      return box;
    });
    this.matrices.replaceChildren(...tables);
  }

  sizer(name, key, act) {
    const signs = { addRow: "+↓", removeRow: "−↑", addColumn: "+→", removeColumn: "−←" };
    const label = `${this.text(key)}: ${this.text(`matrix-${name}`)}`;
    return element("button", { type: "button", "aria-label": label, title: label, onclick: () => { act(); this.drawMatrices(); this.changeOptions({}); } }, signs[key]);
  }

  async updateFree() {
    const { score, mask, normalizer, scale } = this.options;
    const { query, key, value } = this.values;
    this.formula.textContent = `C = ${FORMULAS[normalizer]}( ${scale === 1 ? "" : `${scale} · `}${FORMULAS[score]}${maskFormula(mask, query.length, key.length)} ) · V`;
    this.remember({ mode: "free", ...this.options, ...Object.fromEntries(Object.entries(this.values).map(([name, rows]) => [name, JSON.stringify(rows)])) });
    this.problem(null);
    if (query[0].length !== key[0].length) return this.problem({ message: this.text("widths", { query: query[0].length, key: key[0].length }), field: "key", status: 422 });
    if (key.length !== value.length) return this.problem({ message: this.text("counts", { key: key.length, value: value.length }), field: "value", status: 422 });
    const options = { score, normalize: normalizer, mask: VISIBLE[mask] ?? null, temperature: 1 / scale };
    if (score === "additive") options.parameters = plainAdditive(key[0].length);
    const result = attend(query, key, value, options);
    const cells = result.context.map((row, i) => element("tr", {}, element("th", { scope: "row" }, `c${i + 1}`), ...row.map((each) => element("td", {}, each.toFixed(3).replace("-", "−")))));
    this.result.replaceChildren(element("div", { class: "matrix" }, element("h3", {}, this.text("matrix-output")), element("table", {}, element("tbody", {}, ...cells))));
    const labels = [query.map((_, i) => `q${i + 1}`), key.map((_, i) => `k${i + 1}`)];
    await this.showPayload(this.views, new Computed({ name: "attend", sides: ["query", "key"], labels, heads: [result], options,
      vectors: { query: [query], key: [key], value: [value] } }), ["heatmap", "workflow"]);
    if (this.views.view.query === null) this.views.view.pin(0, null);
    this.dataset.drawn = String(performance.now());
    return null;
  }
}

function isMatrix(rows) {
  return Array.isArray(rows) && rows.length > 0 && rows.every((row) => Array.isArray(row) && row.length > 0 && row.every(Number.isFinite));
}

customElements.define("studio-workflow", WorkflowRoom);
