// <regard-views>: linked views of one payload, and their settings.

import "regard/graph.js";
import "regard/heads.js";
import "regard/heatmap.js";
import "regard/links_table.js";
import "regard/strip.js";
import "regard/workflow.js";
import { element } from "regard/panel.js";
import { View } from "regard/view.js";
import { LANGUAGES } from "regard/texts.js";

export const SECTIONS = ["strip", "heatmap", "heads", "settings", "workflow", "graph", "table"];

export class Views extends HTMLElement {
  /**
   * Show a payload.
   * @param {import("regard/payload.js").Payload} payload
   * @param {object} settings of the view
   * @param {string[]} sections names of views
   */
  async show(payload, settings = {}, sections = SECTIONS) {
    const { curve = "linear", call = 0, heads = [0] } = payload.data;
    this.view = new View(payload, { curve, call, heads, ...settings });
    this.view.addEventListener("change", (event) => this.onChange(event.detail));
    this.replaceChildren();
    this.build(sections);
    this.translate();
    await this.view.load(["trace", "call"]);
  }

  /** Show another payload of the same model, with the same call, heads and settings. */
  async update(payload) {
    this.view.payload = payload;
    await this.view.load(["trace", "call"]);
  }

  /** Whether a payload has the calls of the one that is shown. */
  fits({ traces }) {
    const names = (calls) => calls.map(({ name, heads }) => `${name} ${heads}`).join();
    const own = this.view?.payload.traces;
    return own?.length === traces.length && names(own.at(-1).calls) === names(traces.at(-1).calls);
  }

  settings() {
    const { view } = this;
    const calls = this.calls();
    const tools = element("section", { class: "toolbar", "data-aria": "settings" },
      calls.length > 1 ? this.picker("layer", calls, view.call, (value) => this.pick(Number(value))) : null,
      this.slider("share", 5, 100, Math.round(view.share * 100), (value) => view.change({ share: value / 100 }), (v) => `${v} %`),
      this.picker("colors", [["viridis"], ["gray"]], view.colors, (colors) => view.change({ colors })),
      this.picker("scaleRange", [["fixed"], ["data"]], view.range, (range) => view.change({ range })),
      this.picker("curve", [["linear"], ["root"]], view.curve, (curve) => view.change({ curve })));
    if (this.isPage) {
      tools.append(this.picker("theme", [["auto"], ["light"], ["dark"]], view.theme, (theme) => view.change({ theme })),
        this.picker("language", Object.entries(LANGUAGES), view.language, (language) => view.change({ language })));
    }
    if (view.payload.traces.length > 1) tools.prepend(this.checkpoints());
    return tools;
  }

  calls() {
    return this.view.payload.traces[this.view.trace].calls.map(({ name }, call) => [String(call), name]);
  }

  pick(call) {
    this.view.change({ call, heads: [this.view.payload.call(this.view.trace, call).firstHead ?? 0] });
  }

  picker(word, options, selected, act) {
    const id = `${this.view.prefix}-${word}`;
    const select = element("select", { id, onchange: () => act(select.value) });
    select.append(...options.map(([value, text]) =>
      element("option", { value, selected: value === String(selected), "data-text": text ? null : value }, text ?? "")));
    return element("div", { class: "field" }, element("label", { for: id, "data-text": word }), select);
  }

  slider(word, least, most, value, act, write) {
    const id = `${this.view.prefix}-${word}`;
    const output = element("output", { for: id }, write(value));
    const input = element("input", {
      id, type: "range", min: least, max: most, value,
      oninput: () => {
        output.textContent = write(Number(input.value));
        input.setAttribute("aria-valuetext", output.textContent);
        act(Number(input.value));
      },
    });
    input.setAttribute("aria-valuetext", output.textContent);
    return element("div", { class: "field" }, element("label", { for: id, "data-text": word }), input, output);
  }

  /** The slider over the checkpoints of a run: how the alignment was learned. */
  checkpoints() {
    const { traces } = this.view.payload;
    const field = this.slider("checkpoint", 0, traces.length - 1, this.view.trace,
      (trace) => this.view.change({ trace }), (trace) => traces[trace].label);
    const input = field.querySelector("input");
    this.player = element("button", { type: "button", onclick: () => this.play(input) });
    field.append(this.player);
    return field;
  }

  play(input) {
    if (this.playing) {
      clearInterval(this.playing);
      this.playing = null;
    } else {
      const { length } = this.view.payload.traces;
      if (Number(input.value) === length - 1) input.value = -1;
      this.playing = setInterval(() => {
        input.value = Number(input.value) + 1;
        input.dispatchEvent(new Event("input"));
        if (Number(input.value) === length - 1) this.play(input);
      }, 700);
    }
    this.translate();
  }

  /** A single map has no head to choose: show the table in place of the heads, if there is one. */
  withoutChoice(sections) {
    const isSingle = this.view.payload.traces.every(({ calls }) => calls.length === 1 && calls[0].heads === 1);
    if (!isSingle || !sections.includes("heads")) return sections;
    const [tables, others] = [true, false].map((wanted) => sections.filter((name) => (name === "table") === wanted));
    return others.flatMap((name) => name === "heads" ? tables : name);
  }

  build(sections) {
    const { prefix } = this.view;
    this.live = element("p", { class: "sentence", role: "status", "aria-live": "polite" });
    this.append(this.live);
    for (const name of this.withoutChoice(sections)) {
      if (name === "settings") {
        this.append(this.settings());
        continue;
      }
      const panel = document.createElement(`regard-${name}`);
      const help = element("p", { class: "small help", id: `${prefix}-${name}-help`, "data-text": `${name}Help` });
      const heading = element("h2", { id: `${prefix}-${name}-title`, "data-text": name });
      const scale = name === "heatmap" ? document.createElement("regard-scale") : null;
      this.append(element("section", { class: name, id: `${prefix}-${name}`, "aria-labelledby": heading.id },
        element("div", { class: "heading" }, heading, scale), help, panel));
      panel.view = this.view;
      if (scale) scale.view = this.view;
    }
    if (!sections.includes("settings")) return;
    this.origin = element("dl");
    this.append(element("details", { class: "provenance" }, element("summary", { "data-text": "provenance" }), this.origin));
  }

  onChange(changed) {
    if (changed.has("language")) this.translate();
    const picker = this.querySelector(`#${this.view.prefix}-layer`);
    if (picker && (changed.has("call") || changed.has("trace"))) picker.value = String(this.view.call);
    if (this.origin && (changed.has("call") || changed.has("trace") || changed.has("language"))) {
      this.origin.replaceChildren(...Object.entries(this.view.about.provenance).flatMap(([name, value]) => [
        element("dt", {}, this.view.name(name)), element("dd", {}, String(value))]));
    }
    if (!this.view.map || this.speaking) return;
    this.speaking = requestAnimationFrame(() => {
      this.speaking = null;
      this.live.textContent = this.view.sentence();
      if (this.view.locked) this.live.append(element("span", { class: "small" }, ` (${this.view.text("locked")})`));
    });
  }

  /** Write every text of the views in the selected language. */
  translate() {
    const { view } = this;
    for (const part of this.querySelectorAll("[data-text]")) part.textContent = view.text(part.dataset.text);
    for (const part of this.querySelectorAll("[data-tooltip]")) {
      part.setAttribute("aria-label", view.text(part.dataset.tooltip));
      part.title = view.text(part.dataset.tooltip);
    }
    for (const part of this.querySelectorAll("[data-aria]")) part.setAttribute("aria-label", view.text(part.dataset.aria));
    if (this.player) this.player.textContent = view.text(this.playing ? "pause" : "play");
  }
}

customElements.define("regard-views", Views);
