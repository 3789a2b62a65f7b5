// <studio-gallery>: every mechanism with its formula, its map, and its cost on this machine.

import { paint } from "regard/color.js";
import { element } from "regard/panel.js";
import { get, post } from "studio/api.js";
import { lines } from "studio/chart.js";
import { Room } from "studio/room.js";

export class GalleryRoom extends Room {
  async build() {
    const waiting = element("p", { class: "empty", role: "status" }, this.text("galleryWait"));
    const problem = element("p", { class: "problem", role: "alert", hidden: true });
    const top = element("div", { "data-field": "gallery" }, problem);
    this.append(element("div", { class: "intro" }, element("h2", {}, this.text("room-gallery")), element("p", { class: "small" }, this.text("galleryHelp"))), top, waiting);
    const { exhibits, has_docs: hasDocs } = await get("/gallery");
    if (!this.isConnected) return;
    this.hasDocs = hasDocs;
    waiting.remove();
    const rooms = grouped(exhibits, (each) => this.texts(each).room);
    this.filter = element("input", { type: "search", value: this.given.get("find") ?? "", oninput: () => this.find() });
    this.append(this.control("find", this.filter));
    for (const [room, own] of rooms) {
      this.append(element("section", { class: "shelf", "aria-label": room }, element("h3", {}, room), element("div", { class: "exhibits" }, ...own.map((each) => this.card(each)))));
    }
    this.find();
    const wanted = this.given.get("name");
    if (wanted) this.querySelector(`[data-name="${CSS.escape(wanted)}"]`)?.scrollIntoView();
  }

  find() {
    const words = this.filter.value.toLowerCase();
    this.remember({ find: this.filter.value });
    for (const card of this.querySelectorAll(".exhibit")) card.hidden = !card.textContent.toLowerCase().includes(words);
    for (const shelf of this.querySelectorAll(".shelf")) shelf.hidden = !shelf.querySelector(".exhibit:not([hidden])");
  }

  /** What is written about a mechanism. */
  texts({ texts }) {
    return texts[this.studio.language];
  }

  card(exhibit) {
    const { name, code, guide } = exhibit;
    const { title, formula, paper, caption } = this.texts(exhibit);
    const cost = element("div", { class: "cost" });
    const button = this.button("measureCost", async () => {
      button.disabled = true;
      cost.replaceChildren(element("p", { class: "small", role: "status" }, this.text("measuring")));
      try {
        this.curve(cost, await post("/gallery/cost", { name }));
      } catch (error) {
        cost.replaceChildren(element("p", { class: "problem", role: "alert" }, error.message));
      }
      button.disabled = false;
    });
    const card = element("article", { class: "exhibit" }, element("h4", {}, title), element("p", { class: "formula" }, formula),
      element("p", { class: "small" }, paper), this.map(exhibit), element("p", { class: "small" }, caption), element("code", {}, code), this.guide(guide), button, cost);
    card.dataset.name = name;
    return card;
  }

  /** The chapter of the guide: a link where the studio serves the documentation, or else its file. */
  guide(chapter) {
    const { language } = this.studio;
    const page = `guide/${chapter}`;
    const where = this.hasDocs
      ? element("a", { href: `/docs/${language === "en" ? "" : `${language}/`}${page}.html`, target: "_blank", rel: "noopener" }, this.text(`guide-${chapter}`))
      : element("code", {}, `docs/${page}${language === "en" ? "" : `.${language}`}.md`);
    return element("p", { class: "small" }, `${this.text("guide")}: `, where);
  }

  /** The map as a small picture; its rows are queries and its columns keys. */
  map(exhibit) {
    const { weights } = exhibit;
    const { title, rows, columns } = this.texts(exhibit);
    const canvas = element("canvas", { width: columns.length, height: rows.length, class: "map", role: "img", "aria-label": this.text("mapOf", { title, rows: rows.length, columns: columns.length }) });
    const context = canvas.getContext("2d");
    context.putImageData(paint(context.createImageData(columns.length, rows.length), weights.flat(), { colors: "viridis", curve: "linear", top: 1 }), 0, 0);
    canvas.style.aspectRatio = `${columns.length} / ${rows.length}`;
    canvas.addEventListener("pointermove", (event) => {
      const key = Math.min(columns.length - 1, Math.floor((event.offsetX / canvas.clientWidth) * columns.length));
      const query = Math.min(rows.length - 1, Math.floor((event.offsetY / canvas.clientHeight) * rows.length));
      canvas.title = `${rows[query]} → ${columns[key]}: ${weights[query]?.[key]?.toFixed(2)}`;
    });
    return canvas;
  }

  curve(place, { lengths, milliseconds, dense }) {
    const chart = lines([
      { name: this.text("thisMechanism"), points: lengths.map((length, i) => [length, milliseconds[i]]), color: "var(--accent)" },
      { name: "torch SDPA", points: lengths.map((length, i) => [length, dense[i]]), color: "var(--other)" },
    ], { x: this.text("length"), y: "ms", title: this.text("costTitle"), logarithmic: true });
    const text = lengths.map((length, i) => `${length}: ${milliseconds[i].toPrecision(2)} ms`).join(", ");
    place.replaceChildren(chart, element("p", { class: "small", role: "status" }, text));
  }
}

function grouped(all, by) {
  const groups = new Map();
  for (const each of all) groups.set(by(each), [...(groups.get(by(each)) ?? []), each]);
  return groups;
}

customElements.define("studio-gallery", GalleryRoom);
