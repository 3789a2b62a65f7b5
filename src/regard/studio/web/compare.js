// <studio-compare>: one input through several runs, side by side.

import { element } from "regard/panel.js";
import { Payload } from "regard/payload.js";
import { tokenText } from "regard/texts.js";
import { meanOf } from "regard/weights.js";
import { post } from "studio/api.js";
import { InputRoom } from "studio/input_room.js";

const MOST = 4;

export class CompareRoom extends InputRoom {
  sections = ["strip", "heatmap"];

  async build() {
    const runs = this.studio.runs.filter((run) => run.is_trained);
    if (runs.length < 2) {
      const link = element("a", { href: "#/train" }, this.text("goTrain"));
      return this.append(this.heading(), this.empty("compareEmpty", element("p", {}, link)));
    }
    return super.build();
  }

  runPicker(act) {
    const runs = this.studio.runs.filter((run) => run.is_trained);
    const names = runs.map((run) => run.name);
    const wanted = (this.given.get("runs") ?? "").split(",").filter((name) => names.includes(name));
    const first = runs.filter((run) => run.task === runs[0].task).map((run) => run.name).slice(0, 2);
    this.chosen = wanted.length > 1 ? wanted.slice(0, MOST) : first;
    const boxes = runs.map((run) => {
      const box = element("input", { type: "checkbox", value: run.name, checked: this.chosen.includes(run.name), onchange: () => this.check(box) });
      return element("label", { class: "check" }, box, ` ${run.name} `, element("span", { class: "small" }, this.about(run)));
    });
    const problem = element("p", { class: "problem", role: "alert", hidden: true });
    const field = element("fieldset", { class: "control runs" }, element("legend", {}, this.text("chooseRuns")), ...boxes, problem);
    field.dataset.field = "runs";
    return { field, selected: this.chosen[0] };
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
    this.remember({ runs: this.chosen.join(","), text: this.input.value, run: null });
    if (!this.input.value.trim()) return this.cleared();
    if (this.chosen.length < 2) return this.problem({ message: this.text("twoRuns"), field: "runs", status: 422 });
    try {
      const given = { runs: this.chosen, text: this.input.value };
      const found = await this.latest.run((signal) => post("/compare", given, { signal }));
      if (!found) return;
      this.problem(null);
      await this.showAll(found.compared);
    } catch (error) {
      this.problem(error);
      if (error.status === 0) this.retry();
    }
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
    for (const { run, error, looked } of compared) {
      if (!this.shown.has(run)) this.shown.set(run, document.createElement("regard-views"));
      const views = this.shown.get(run);
      const pane = element("section", { class: "pane", "aria-label": run }, element("h3", {}, run), element("p", { class: "output", dir: "auto" }, looked?.output ?? ""));
      pane.append(error ? element("p", { class: "problem" }, error) : views);
      panes.push([pane, views, looked]);
    }
    this.panes.replaceChildren(...panes.map(([pane]) => pane));
    for (const [, views, looked] of panes) if (looked) await this.showViews(views, looked.page);
    await this.differ(compared);
    this.dataset.drawn = String(performance.now());
  }

  viewed() {}

  rows(compared) {
    const heads = ["run", "model", "output", "quality", "time", "entropy"];
    const quality = (metrics) => Object.entries(metrics).filter(([name]) => name !== "loss").slice(0, 2).map(([name, value]) => `${name} ${value.toFixed(3)}`).join(", ");
    this.table.replaceChildren(element("table", {},
      element("caption", {}, this.text("compareTable")),
      element("thead", {}, element("tr", {}, ...heads.map((key) => element("th", { scope: "col" }, this.text(key))))),
      element("tbody", {}, ...compared.map((each) => element("tr", {}, element("th", { scope: "row" }, each.run), element("td", {}, each.model),
        element("td", { dir: "auto" }, each.looked?.output ?? each.error ?? ""), element("td", {}, quality(each.metrics)),
        element("td", {}, each.looked ? `${each.looked.milliseconds.toFixed(0)} ms` : ""),
        element("td", {}, each.entropy === null ? this.text("noAttentionShort") : each.entropy.toFixed(2)))))));
  }

  /** The mean maps from output to input of the first two runs with attention, and their difference. */
  async differ(compared) {
    const ready = [];
    for (const { run, same_output: page } of compared) {
      if (!page) continue;
      const payload = new Payload(page.data, (name) => page.chunks[name]);
      const { calls } = payload.traces[0];
      const maps = [];
      let labels = null;
      for (const [index, call] of calls.entries()) {
        if (call.queries !== "target" || call.keys !== "source" || call.kind !== "dense") continue;
        labels = payload.labels(call);
        for (let head = 0; head < call.heads; head++) maps.push(await payload.map(0, index, head));
      }
      if (maps.length) ready.push({ run, labels, map: meanOf(maps) });
    }
    const [a, b] = ready;
    const fits = b && a.map.rows === b.map.rows && a.map.columns === b.map.columns;
    this.difference.hidden = false;
    const title = element("h3", {}, this.text("difference"));
    if (!fits) return this.difference.replaceChildren(title, element("p", { class: "small" }, this.text("noDifference")));
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
    return this.difference.replaceChildren(title, element("p", { class: "small" }, this.text("differenceHelp", { first: a.run, second: b.run })),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("difference") }, element("table", { class: "difference" }, element("thead", {}, head), element("tbody", {}, ...rows))));
  }
}

customElements.define("studio-compare", CompareRoom);
