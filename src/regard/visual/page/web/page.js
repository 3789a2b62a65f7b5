// <regard-page>: a title, and the linked views of one payload.

import "regard/views.js";
import { element } from "regard/panel.js";
import { Payload } from "regard/payload.js";

export class Page extends HTMLElement {
  /**
   * Show a payload.
   * @param {object} data see Payload
   * @param {(name: string) => string | Promise<string>} chunk
   */
  async show(data, chunk) {
    this.data = data;
    this.views = document.createElement("regard-views");
    this.views.isPage = true;
    this.replaceChildren(this.header(), element("main", {}, this.views));
    const shown = this.views.show(new Payload(data, chunk), { language: data.language });
    this.views.view.addEventListener("change", (event) => this.onChange(event.detail));
    this.translate();
    await shown;
    this.dataset.ready = String(Math.round(performance.now()));
  }

  get view() {
    return this.views.view;
  }

  /** The title: the model, its input and its output, as far as they are known. */
  header() {
    const { model, input, output } = this.data;
    this.heading = element("h1");
    this.skip = element("a", { class: "skip", href: "#regard-heatmap" });
    const parts = [input, output].filter(Boolean).map((text) => element("bdi", {}, text));
    if (parts.length === 2) parts.splice(1, 0, " → ");
    const text = element("p", { class: "text", title: model }, ...parts);
    return element("header", {}, this.skip, this.heading, text, ...this.missed());
  }

  /** The modules that look like attention and were not recorded, if there are any. */
  missed() {
    const { missed } = this.data;
    this.missedTitle = element("summary");
    const items = missed.map((text) => element("li", {}, text));
    return missed.length ? [element("details", { class: "missed" }, this.missedTitle, element("ul", {}, ...items))] : [];
  }

  onChange(changed) {
    if (changed.has("theme")) document.documentElement.dataset.theme = this.view.theme;
    if (changed.has("language")) this.translate();
  }

  translate() {
    const { view } = this;
    const { model, input, output, missed } = this.data;
    document.documentElement.lang = view.language;
    this.skip.textContent = view.text("skip");
    this.heading.textContent = model ? `${view.text("title")}: ${model}` : view.text("title");
    this.missedTitle.textContent = view.text("missed", { count: missed.length });
    const about = [input, output].filter(Boolean).join(" → ");
    document.title = [about, this.heading.textContent].filter(Boolean).join(" · ");
  }
}

customElements.define("regard-page", Page);

/** Show what the document itself carries: its data, and a script element per chunk. */
export function start() {
  const data = JSON.parse(document.getElementById("regard-data").textContent);
  const chunk = (name) => document.getElementById(name).textContent;
  return document.querySelector("regard-page").show(data, chunk);
}
