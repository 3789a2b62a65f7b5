// <regard-table>: the links of every row as text, for screen readers too.

import { element, Panel } from "regard/panel.js";
import { tokenText } from "regard/texts.js";

const PAGE = 50; // rows at once

export class LinksTable extends Panel {
  build() {
    this.start = 0;
    this.head = element("tr");
    this.body = element("tbody");
    this.caption = element("caption", { class: "visually-hidden" });
    this.range = element("span", { class: "small" });
    const turn = (name, pages) =>
      element("button", { type: "button", "data-tooltip": name, onclick: () => this.turn(pages) }, pages < 0 ? "←" : "→");
    this.turner = element("div", { class: "tools" }, turn("before", -1), turn("after", 1), this.range);
    this.append(this.turner,
      element("div", { class: "scroll", tabindex: "0", role: "region", "data-aria": "table" },
        element("table", {}, this.caption, element("thead", {}, this.head), this.body)));
  }

  update(changed) {
    if (["map", "trace", "share", "language"].some((name) => changed.has(name))) this.schedule(this.fill);
    else if (changed.has("query")) this.schedule(this.mark);
  }

  turn(pages) {
    const { rows } = this.view.map;
    const last = Math.max(0, Math.floor((rows - 1) / PAGE) * PAGE);
    this.start = Math.min(Math.max(this.start + pages * PAGE, 0), last);
    this.fill();
  }

  fill() {
    const { view } = this;
    const { rows } = view.map;
    if (this.start >= rows) this.start = 0;
    const [queries] = view.labels;
    const end = Math.min(this.start + PAGE, rows);
    this.turner.hidden = rows <= PAGE;
    this.range.textContent = view.text("range", { from: this.start + 1, to: end, all: rows });
    this.caption.textContent = view.text("tableHelp");
    this.head.replaceChildren(
      element("th", { scope: "col" }, view.text("query")), element("th", { scope: "col" }, view.text("attends")));
    const lines = [];
    for (let query = this.start; query < end; query++) {
      const name = element("th", { scope: "row", dir: "auto" }, tokenText(queries[query]));
      const cell = element("td", {}, view.rowSentence(query));
      lines.push(element("tr", { "data-query": query, onclick: () => view.pin(query, null) }, name, cell));
    }
    this.body.replaceChildren(...lines);
    this.mark();
  }

  mark() {
    for (const line of this.body.rows) {
      line.classList.toggle("chosen", Number(line.dataset.query) === this.view.query);
    }
  }
}

customElements.define("regard-table", LinksTable);
