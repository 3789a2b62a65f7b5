// <studio-workflow>: the calculation step by step, of a model or of numbers written by hand.

import { element } from "regard/panel.js";
import { Latest, post } from "studio/api.js";
import { InputRoom } from "studio/look.js";

const FREE = {
  query: [[1, 0, 1], [0, 2, 0]],
  key: [[1, 0, 1], [0, 2, 0], [1, 1, 0], [0, 0, 1]],
  value: [[1, 0], [0, 1], [0.5, 0.5], [-1, 1]],
};
const CHOICES = {
  score: ["dot", "scaled_dot", "cosine", "additive"],
  mask: ["none", "causal", "window"],
  normalizer: ["softmax", "sparsemax", "entmax15", "hard"],
};
const FORMULAS = {
  dot: "q · k", scaled_dot: "q · k / √d", cosine: "cos(q, k)", additive: "1ᵀ tanh(q + k)",
  none: "", causal: " + M, j ≤ i", window: " + M, |i − j| ≤ 1",
  softmax: "softmax", sparsemax: "sparsemax", entmax15: "1.5-entmax", hard: "one-hot argmax",
};

export class WorkflowRoom extends InputRoom {
  sections = ["strip", "workflow"];

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
    this.append(this.heading(), this.tabs, this.form, this.views);
  }

  cleared() {
    this.views.replaceChildren(this.empty("lookEmpty"));
    this.views.view = null;
  }

  async show(looked) {
    await this.showViews(this.views, looked.page);
    if (this.views.view && this.views.view.query === null) this.views.view.pin(Number(this.given.get("query") ?? 0), null);
    this.dataset.drawn = String(performance.now());
  }

  // ------------------------------------------------------------------ free mode

  async buildFree() {
    this.latest = new Latest();
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
    const pickers = Object.entries(CHOICES).map(([name, choices]) => this.control(name, this.select(
      choices.map((choice) => [choice, this.text(`${name}-${choice}`)]), this.options[name], (value) => this.changeFree({ [name]: value }))));
    const scale = element("input", { type: "range", min: "0", max: "5", step: "0.1", value: String(this.options.scale),
      oninput: () => { this.scaleOutput.textContent = scale.value; this.changeFree({ scale: Number(scale.value) }); } });
    this.scaleOutput = element("output", {}, String(this.options.scale));
    const scaleField = this.control("scale", scale);
    scaleField.append(this.scaleOutput);
    this.formula = element("p", { class: "formula" });
    this.matrices = element("div", { class: "matrices" });
    this.result = element("div", { class: "matrices" });
    this.views = document.createElement("regard-views");
    this.append(this.heading(), this.tabs, element("div", { class: "form" }, ...pickers, scaleField), this.formula, this.matrices, this.result, this.views);
    this.drawMatrices();
    await this.updateFree();
  }

  changeFree(options) {
    Object.assign(this.options, options);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.updateFree(), 30);
  }

  drawMatrices() {
    const tables = Object.entries(this.values).map(([name, rows]) => {
      const body = rows.map((row, i) => element("tr", {}, ...row.map((value, j) => {
        const input = element("input", { type: "number", step: "0.1", min: "-1000000", max: "1000000", value: String(value), "aria-label": this.text("entry", { name: this.text(`matrix-${name}`), row: i + 1, column: j + 1 }),
          oninput: () => {
            const typed = Number(input.value);
            if (input.value === "" || !Number.isFinite(typed)) return;
            this.values[name][i][j] = typed;
            this.changeFree({});
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
    return element("button", { type: "button", "aria-label": label, title: label, onclick: () => { act(); this.drawMatrices(); this.changeFree({}); } }, signs[key]);
  }

  async updateFree() {
    const { score, mask, normalizer, scale } = this.options;
    this.formula.textContent = `C = ${FORMULAS[normalizer]}( ${scale === 1 ? "" : `${scale} · `}${FORMULAS[score]}${FORMULAS[mask]} ) · V`;
    this.remember({ mode: "free", ...this.options, ...Object.fromEntries(Object.entries(this.values).map(([name, rows]) => [name, JSON.stringify(rows)])) });
    try {
      const found = await this.latest.run((signal) => post("/attend", { ...this.values, ...this.options }, { signal }));
      if (!found) return;
      this.problem(null);
      const cells = found.output.map((row, i) => element("tr", {}, element("th", { scope: "row" }, `c${i + 1}`), ...row.map((value) => element("td", {}, value.toFixed(3).replace("-", "−")))));
      this.result.replaceChildren(element("div", { class: "matrix" }, element("h3", {}, this.text("matrix-output")), element("table", {}, element("tbody", {}, ...cells))));
      await this.showViews(this.views, found.page, ["heatmap", "workflow"]);
      if (this.views.view.query === null) this.views.view.pin(0, null);
      this.dataset.drawn = String(performance.now());
    } catch (error) {
      this.problem(error, "query");
    }
  }
}

function isMatrix(rows) {
  return Array.isArray(rows) && rows.length > 0 && rows.every((row) => Array.isArray(row) && row.length > 0 && row.every(Number.isFinite));
}

customElements.define("studio-workflow", WorkflowRoom);
