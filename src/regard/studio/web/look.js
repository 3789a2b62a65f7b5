// <studio-look>: type an input, see the output and what was attended to.

import { element } from "regard/panel.js";
import { tokenText } from "regard/texts.js";
import { blob } from "studio/api.js";
import { digits, InputRoom } from "studio/input_room.js";

const PICTURE_DEBOUNCE = 400; // milliseconds

export class Look extends InputRoom {
  parts() {
    this.words = element("div", { class: "output-words", role: "group", "aria-label": this.text("output") });
    this.output = element("p", { class: "output", "aria-live": "polite", dir: "auto" });
    this.beam = element("ol", { class: "beam" });
    this.beamSection = element("details", { open: true }, element("summary", {}, this.text("beam")), this.beam);
    this.picture = element("img", { class: "picture", hidden: true, alt: "" });
    this.back = this.button("ownOutput", () => { this.forced = []; this.update(); }, { hidden: true });
    this.answer = element("section", { class: "answer", "aria-label": this.text("output"), hidden: true },
      element("div", { class: "heading" }, element("h3", {}, this.text("output")), this.files()),
      element("div", { class: "columns" },
        element("div", {}, this.output, this.words, element("p", { class: "small word-help" }, this.text("wordHelp")), this.back),
        this.beamSection),
      this.picture);
    this.append(this.heading(), this.form, this.answer, this.views);
  }

  reset() {
    this.answer.hidden = true;
  }

  cleared() {
    this.answer.hidden = true;
    this.views.replaceChildren(this.empty("lookEmpty"));
    this.views.view = null;
  }

  async show(looked) {
    this.looked = looked;
    this.answer.hidden = false;
    this.output.textContent = looked.output || (looked.task === "pretrained" ? "" : "∅"); // an encoder writes nothing
    const isLong = looked.output.split("\n").length > 3;
    this.output.classList.toggle("long", isLong);
    this.output.tabIndex = isLong ? 0 : -1; // it scrolls
    this.words.replaceChildren(...looked.words.map((word, place) => this.word(word, place)));
    for (const part of [this.words, this.answer.querySelector(".word-help")]) part.hidden = !looked.words.length;
    this.beamSection.hidden = looked.candidates.length < 2;
    this.beam.replaceChildren(...looked.candidates.map(({ text, score }) =>
      element("li", {}, element("span", { dir: "auto" }, text || "∅"), element("span", { class: "score" }, digits(score)))));
    this.back.hidden = !this.forced.length;
    this.draw(looked);
    await this.showViews(this.views, looked.page);
    this.dataset.drawn = String(performance.now());
  }

  /** An output word: a button that opens the words that could stand there. */
  word(word, place) {
    const chosen = place < this.forced.length ? " chosen" : "";
    const button = element("button", {
      type: "button", class: `output-word${chosen}`, "aria-haspopup": "menu", "aria-expanded": "false",
      onclick: () => this.menu(button, word, place),
    }, tokenText(word.token));
    button.style.setProperty("--doubt", `${Math.round(100 * (1 - Math.exp(word.log_probability)))}%`);
    return element("span", { class: "output-slot" }, button);
  }

  menu(button, word, place) {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    this.closeMenu();
    if (isOpen) return;
    button.setAttribute("aria-expanded", "true");
    const items = word.choices.map((choice) => element("button", {
      type: "button", role: "menuitem", class: choice.id === word.id ? "chosen" : null, onclick: () => this.choose(place, choice.id),
    }, element("span", {}, tokenText(choice.token)), element("span", { class: "score" }, `${(100 * choice.probability).toFixed(1)} %`)));
    items.push(element("button", { type: "button", role: "menuitem", class: "why", onclick: () => this.why(place) }, this.text("why")));
    const menu = element("div", { class: "menu", role: "menu", "aria-label": this.text("otherWords", { word: tokenText(word.token) }) }, ...items);
    menu.addEventListener("keydown", (event) => {
      const now = items.indexOf(document.activeElement);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) items[(now + step + items.length) % items.length].focus();
      else if (event.key === "Escape") { this.closeMenu(); button.focus(); }
      else return;
      event.preventDefault();
    });
    button.after(menu);
    items[0].focus();
    this.closer = (event) => { if (!button.parentElement.contains(event.target)) this.closeMenu(); };
    document.addEventListener("pointerdown", this.closer);
  }

  closeMenu() {
    document.removeEventListener("pointerdown", this.closer);
    this.querySelector(".menu")?.remove();
    this.querySelector('[aria-expanded="true"]')?.setAttribute("aria-expanded", "false");
  }

  /** Open the page on why a word was written, in a tab of its own. */
  async why(place) {
    this.closeMenu();
    const tab = window.open(); // at once: a tab opened later is a pop-up
    const written = this.looked.words.map((word) => word.id);
    const request = { run: this.run, text: this.input.value, written, at: place, language: this.studio.language };
    try {
      tab.location = URL.createObjectURL(await blob("/why", request));
    } catch (error) {
      tab?.close();
      this.problem(error);
    }
  }

  choose(place, id) {
    this.closeMenu();
    const eos = this.looked.words.at(-1).id;
    if (id === eos) return;
    this.forced = [...this.looked.words.slice(0, place).map((word) => word.id), id];
    this.update();
  }

  /** The picture of the task: a shaded document, a graph, an image, a tape, reasons. */
  draw(looked) {
    clearTimeout(this.pictureTimer);
    if (!looked.has_picture) {
      this.picture.hidden = true;
      return;
    }
    this.pictureTimer = setTimeout(async () => {
      const request = { ...this.request, format: "svg" };
      const file = await blob("/file", request).catch(() => null);
      if (!file || this.looked !== looked) return;
      URL.revokeObjectURL(this.picture.src);
      this.picture.src = URL.createObjectURL(file);
      this.picture.alt = this.text("pictureOf", { text: looked.output.split("\n")[0] });
      this.picture.hidden = false;
    }, this.picture.hidden ? 0 : PICTURE_DEBOUNCE);
  }
}

customElements.define("studio-look", Look);
