// <regard-heads>: a thumbnail of every head of every attention call, in a chosen order.

import { paint } from "regard/color.js";
import { element, Panel } from "regard/panel.js";

export const ORDERS = ["byLayer", "entropy", "sink", "diagonal", "previous", "next"];

export class Heads extends Panel {
  build() {
    const id = `${this.view.prefix}-sort`;
    this.select = element("select", { id, onchange: () => this.view.change({ sort: this.select.value }) });
    this.label = element("label", { for: id });
    this.grid = element("div", { class: "grid", role: "group", "data-aria": "heads" });
    this.append(element("div", { class: "tools" }, this.label, this.select), this.grid);
    this.grid.addEventListener("keydown", (event) => this.press(event));
  }

  async update(changed) {
    if (changed.has("language") || !this.select.options.length) {
      this.label.textContent = this.view.text("sort");
      this.select.replaceChildren(...ORDERS.map((order) =>
        element("option", { value: order, selected: order === this.view.sort }, this.view.text(order))));
    }
    if (changed.has("trace") || changed.has("sort") || changed.has("language") || !this.buttons) await this.fill();
    else if (["colors", "curve", "range"].some((name) => changed.has(name))) this.paint();
    if (["trace", "call", "heads", "map", "sort", "language"].some((name) => changed.has(name))) this.mark();
  }

  async fill() {
    const { payload, trace } = this.view;
    const calls = payload.traces[trace].calls;
    const filling = (this.filling = {});
    const thumbs = await Promise.all(calls.map((call) => payload.thumbs(call)));
    if (this.filling !== filling) return;
    const entries = calls.flatMap((about, call) =>
      about.diagnostics.map((numbers, head) => ({ about, call, head, numbers, thumb: thumbs[call][head] })));
    const { sort } = this.view;
    if (sort === "entropy") entries.sort((a, b) => a.numbers.entropy - b.numbers.entropy);
    else if (sort !== "byLayer") entries.sort((a, b) => b.numbers[sort] - a.numbers[sort]);
    this.buttons = entries.map((entry) => ({ ...entry, button: this.button(entry) }));
    const rows = [];
    if (sort === "byLayer") {
      calls.forEach((about, call) => {
        const own = this.buttons.filter((entry) => entry.call === call).map((entry) => entry.button);
        const parts = about.name.split(/(?<=[._])/).flatMap((part) => [part, element("wbr")]);
        const role = about.role ? [element("br"), element("small", {}, this.view.name(about.role))] : [];
        rows.push(element("span", { class: "layer", title: about.name }, ...parts, ...role),
          element("div", { class: "row" }, ...own));
      });
    } else rows.push(element("div", { class: "row flat" }, ...this.buttons.map((entry) => entry.button)));
    this.grid.classList.toggle("sorted", sort !== "byLayer");
    this.grid.replaceChildren(...rows);
    this.paint();
    this.mark();
  }

  button({ about, call, head, numbers, thumb }) {
    const digits = (value) => value.toFixed(2);
    const name = this.view.text("head", {
      name: about.name, head: this.view.headNumber(head, about), entropy: digits(numbers.entropy),
      most: digits(Math.log(Math.max(about.columns, 1))),
      sink: digits(numbers.sink), diagonal: digits(numbers.diagonal),
    });
    return element("button", {
      type: "button", class: "thumb", "aria-label": name, title: name, "aria-pressed": "false", tabindex: "-1",
      onclick: (event) => this.choose(call, head, event.shiftKey),
      ondblclick: () => this.choose(call, head, false),
    }, element("canvas", { width: thumb.width, height: thumb.height, "aria-hidden": "true" }), this.caption(about, head));
  }

  /** What is written below a thumbnail: its head, and its call where that is not beside it. */
  caption(about, head) {
    const number = String(this.view.headNumber(head, about));
    return element("span", { class: "caption", "aria-hidden": "true" },
      this.view.sort === "byLayer" ? number : `${about.shortName}·${number}`);
  }

  choose(call, head, isMore) {
    const { heads } = this.view;
    const canMix = this.view.payload.call(this.view.trace, call).kind === "dense";
    if (!isMore || call !== this.view.call || !canMix) this.view.change({ call, heads: [head] });
    else if (!heads.includes(head)) this.view.change({ heads: [...heads, head].sort((a, b) => a - b) });
    else if (heads.length > 1) this.view.change({ heads: heads.filter((other) => other !== head) });
  }

  paint() {
    const { colors, curve, range } = this.view;
    for (const { button, thumb } of this.buttons) {
      const top = range === "data" ? Math.max(...thumb.weights) || 1 : 1;
      const context = button.firstChild.getContext("2d");
      const image = context.createImageData(thumb.width, thumb.height);
      context.putImageData(paint(image, thumb.weights, { colors, curve, top }), 0, 0);
    }
  }

  mark() {
    if (!this.buttons) return;
    let first = null;
    for (const { button, call, head } of this.buttons) {
      const isChosen = call === this.view.call && this.view.heads.includes(head);
      button.setAttribute("aria-pressed", isChosen);
      button.tabIndex = -1;
      if (isChosen) first ??= button;
    }
    const stop = this.buttons.find(({ button }) => button === document.activeElement)?.button ?? first;
    if (stop ?? this.buttons[0]) (stop ?? this.buttons[0].button).tabIndex = 0;
  }

  press(event) {
    const place = this.buttons.findIndex(({ button }) => button === document.activeElement);
    if (place < 0) return;
    const wide = this.view.sort === "byLayer" ? this.buttons[place].about.heads : 12;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide };
    const { call, head } = this.buttons[place];
    if (event.key in moves) {
      const next = Math.min(Math.max(place + moves[event.key], 0), this.buttons.length - 1);
      this.buttons[place].button.tabIndex = -1;
      this.buttons[next].button.tabIndex = 0;
      this.buttons[next].button.focus();
    } else if (event.key === " ") this.choose(call, head, true);
    else if (event.key === "Enter") this.choose(call, head, false);
    else return;
    event.preventDefault();
  }
}

customElements.define("regard-heads", Heads);
