// What the rooms with one run and one input share: typing, requests, views, files.

import { element } from "regard/panel.js";
import { Payload } from "regard/payload.js";
import "regard/views.js";
import { blob, Latest, post } from "studio/api.js";
import { Room } from "studio/room.js";

const DEBOUNCE = 30; // milliseconds
const RETRY = 1500; // milliseconds until a server that did not answer is asked again
const FORMATS = { png: "PNG", svg: "SVG", html: "HTML", attn: ".attn" };

export class InputRoom extends Room {
  sections = ["strip", "heatmap", "heads", "settings", "graph", "table"];

  async build() {
    const runs = this.runPicker((run) => this.chooseRun(run, ""));
    if (!runs) return this.append(this.heading(), this.noRuns());
    this.latest = new Latest();
    this.input = element("textarea", {
      rows: "1", spellcheck: "false", dir: "auto", autocomplete: "off", maxlength: "20000",
      oninput: () => this.typed(),
    });
    this.exampleSlot = element("div", { class: "control examples" });
    this.form = element("div", { class: "form" }, runs.field, this.exampleSlot, this.control("text", this.input));
    this.views = document.createElement("regard-views");
    this.status = element("p", { hidden: true });
    this.parts();
    this.form.after(this.status);
    await this.chooseRun(runs.selected, this.given.get("text"));
  }

  heading() {
    const name = this.localName.slice("studio-".length);
    return element("div", { class: "intro" }, element("h2", {}, this.text(`room-${name}`)), element("p", { class: "small" }, this.text(`${name}Help`)));
  }

  async chooseRun(run, text) {
    this.run = run;
    this.views.replaceChildren();
    this.views.view = null;
    this.example = null;
    this.forced = [];
    this.reset?.();
    this.input.value = text ?? "";
    const known = this.studio.runs.find((each) => each.name === run);
    this.input.placeholder = this.text(`type-${known.task}`);
    this.loading(run);
    let first;
    try {
      first = await this.fillExamples(run);
    } catch (error) {
      return run === this.run ? this.failed(run, error) : null;
    }
    if (run !== this.run) return null;
    if (this.input.value) await this.update();
    else if (first && this.input !== document.activeElement) await this.chooseExample(first);
    else this.remember({ run });
    if (run === this.run) this.status.hidden = true;
    return null;
  }

  /** Say that a model is being loaded. */
  loading(run) {
    this.status.replaceWith(this.status = element("p", { class: "empty", role: "status" }, this.text("loading", { run })));
  }

  /** Say why a model could not be loaded; without an answer, try again. */
  failed(run, error) {
    const isLost = error.status === 0;
    const reason = error.key ? this.text(error.key) : this.text("loadFailed", { run, reason: error.message });
    this.status.replaceWith(this.status = element("p", { class: "problem", role: "alert" }, reason));
    if (isLost) this.timer = setTimeout(() => this.isConnected && this.chooseRun(run, this.input.value), RETRY);
  }

  /** Fill the menu of examples, and return the one to begin with. */
  async fillExamples(run) {
    const { select, texts, count } = await this.examples(run, (value) => this.chooseExample(value));
    if (run !== this.run) return null;
    this.exampleSlot.replaceChildren(element("label", { for: "studio-examples" }, this.text("examples")), select);
    select.id = "studio-examples";
    this.exampleSlot.hidden = !count;
    const wanted = this.given.get("example");
    const first = texts[0] ?? (/^\d+$/.test(wanted) ? `#${wanted}` : "#0");
    return count ? first : null;
  }

  chooseExample(value) {
    this.forced = [];
    this.example = value.startsWith("#") ? Number(value.slice(1)) : null;
    this.input.value = this.example === null ? value : "";
    return this.update();
  }

  typed() {
    this.forced = [];
    this.example = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.update(), DEBOUNCE);
  }

  get request() {
    const input = this.example === null ? { text: this.input.value } : { example: this.example };
    return { run: this.run, ...input, prefix: this.forced };
  }

  async update() {
    this.remember({ run: this.run, text: this.input.value, example: this.example });
    if (!this.input.value.trim() && this.example === null) return this.cleared?.();
    try {
      const looked = await this.latest.run((signal) => post("/look", this.request, { signal }));
      if (!looked) return;
      this.problem(null);
      await this.show(looked);
    } catch (error) {
      this.problem(error);
      if (error.status === 0) this.retry();
    }
  }

  /** Request again until the server is back. */
  retry() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.isConnected && this.update(), RETRY);
  }

  leave() {
    clearTimeout(this.timer);
    clearTimeout(this.pictureTimer);
  }

  /** Show what the server has sent of the attention, if there is any. */
  async showViews(views, page, sections = this.sections) {
    if (!page) return views.replaceChildren(element("p", { class: "empty" }, this.text("noAttention")));
    return this.showPayload(views, new Payload(page.data, (name) => page.chunks[name]), sections);
  }

  /** Show attention in the views, which stay where they are while one types. */
  async showPayload(views, payload, sections = this.sections) {
    if (views.view && views.fits(payload)) return views.update(payload);
    const { language, theme } = this.studio;
    const first = !views.view ? this.addressed(payload.data) : {};
    await views.show(payload, { language, theme, ...first }, sections);
    views.view.addEventListener("change", ({ detail }) => this.viewed?.(views.view, detail));
  }

  /** The call, heads and pin that the address names. */
  addressed(data) {
    const found = {};
    const layer = data.traces.at(-1).calls.findIndex(({ name }) => name === this.given.get("layer"));
    if (layer >= 0) {
      found.call = layer;
      const count = data.traces.at(-1).calls[layer].heads;
      const heads = (this.given.get("heads") ?? "").split(".").filter(Boolean).map(Number).filter((head) => head < count);
      found.heads = heads.length ? heads : [0];
      for (const side of ["query", "key"]) {
        const place = this.given.get(side);
        if (place !== null && /^\d+$/.test(place)) Object.assign(found, { [side]: Number(place), locked: true });
      }
    }
    return found;
  }

  /** Keep the selected call, heads and pinned word in the address. */
  viewed(view, changed) {
    if (!["call", "heads", "locked"].some((name) => changed.has(name))) return;
    this.remember({
      layer: view.about.name, heads: view.heads.join("."),
      query: view.locked ? view.query : null, key: view.locked ? view.key : null,
    });
  }

  /** Buttons for the view as a file. */
  files() {
    const buttons = Object.entries(FORMATS).map(([format, label]) => element("button", {
      type: "button", title: this.text(`file-${format}`), "aria-label": `${label}: ${this.text("download")}, ${this.text(`file-${format}`)}`,
      onclick: () => this.download(format),
    }, label));
    const copy = element("button", { type: "button", onclick: async () => {
      await navigator.clipboard?.writeText(location.href);
      copy.textContent = this.text("copied");
      setTimeout(() => { copy.textContent = this.text("copyAddress"); }, 1500);
    } }, this.text("copyAddress"));
    return element("div", { class: "files" }, ...buttons, copy);
  }

  async download(format) {
    try {
      const file = await blob("/file", { ...this.request, format, language: this.studio.language });
      const link = element("a", { href: URL.createObjectURL(file), download: `regard-${this.run.replaceAll("/", "-")}.${format}` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    } catch (error) {
      this.problem(error);
    }
  }
}

/** A log-probability with two digits. */
export function digits(value) {
  const text = Math.abs(value).toFixed(2);
  return value < 0 && Number(text) ? `−${text}` : text;
}
