// The base class of a room: its texts, its address, its errors.

import { element } from "regard/panel.js";
import { get } from "studio/api.js";
import { say } from "studio/texts.js";

export class Room extends HTMLElement {
  /**
   * @param {object} studio language, theme, runs, and `address(fields)` that writes the address
   * @param {URLSearchParams} given the fields of the address
   */
  open(studio, given) {
    this.studio = studio;
    this.given = given;
    this.fields = {};
    this.replaceChildren();
    return this.build();
  }

  text(key, values) {
    return say(this.studio.language, key, values);
  }

  /** Keep fields in the address, so that it restores this view. */
  remember(fields) {
    this.studio.address({ ...this.fields, ...fields });
    Object.assign(this.fields, fields);
  }

  /** A labelled control; an error of the server is written below it. */
  control(name, input, label = this.text(name)) {
    const id = `studio-${this.localName}-${name}`;
    input.id = id;
    const problem = element("p", { class: "problem", id: `${id}-problem`, role: "alert", hidden: true });
    const field = element("div", { class: `control ${name}` }, element("label", { for: id }, label), input, problem);
    field.dataset.field = name;
    return field;
  }

  select(options, selected, act) {
    const select = element("select", { onchange: () => act(select.value) });
    select.append(...options.map(([value, text]) => element("option", { value, selected: value === selected }, text ?? value)));
    return select;
  }

  button(name, act, options = {}) {
    return element("button", { type: "button", onclick: act, ...options }, this.text(name));
  }

  /** Write an error beside what caused it, or remove it. */
  problem(error, fallback = "text") {
    for (const each of this.querySelectorAll(".problem")) {
      each.hidden = true;
      each.textContent = "";
    }
    if (!error) return;
    const field = this.querySelector(`[data-field="${CSS.escape(error.field ?? fallback)}"]`) ?? this.querySelector("[data-field]");
    const place = field?.querySelector(".problem") ?? (this.general ??= this.appendChild(element("p", { class: "problem", role: "alert" })));
    place.hidden = false;
    place.textContent = error.key ? this.text(error.key) : error.message;
    if (error.status === 0 && !error.key) console.error(error);
  }

  /** A sentence for a room that has nothing to show yet. */
  empty(key, ...more) {
    return element("div", { class: "empty" }, element("p", {}, this.text(key)), ...more);
  }

  /** The list of runs that can be opened, as a select; null if there are none. */
  runPicker(act, name = "run") {
    const runs = this.studio.runs.filter((run) => run.is_trained && (!this.tasks || this.tasks.includes(run.task)));
    if (!runs.length) return null;
    const wanted = this.given.get(name);
    const selected = runs.some((run) => run.name === wanted) ? wanted : runs[0].name;
    const options = runs.map((run) => [run.name, `${run.name} — ${this.about(run)}`]);
    return { field: this.control(name, this.select(options, selected, act)), selected };
  }

  /** The task and the model of a run in words. */
  about({ task, model }) {
    return [this.text(`task-${task}`), model === task ? "" : model].filter(Boolean).join(", ");
  }

  noRuns() {
    const link = element("a", { href: "#/train" }, this.text("goTrain"));
    return this.empty("noRuns", element("p", {}, link));
  }

  /** A menu of examples of a run. */
  async examples(run, act) {
    const { texts, count } = await get(`/examples?run=${encodeURIComponent(run)}`);
    const options = [["", this.text("chooseExample")]];
    if (texts.length) options.push(...texts.map((text) => [text, text.length > 60 ? `${text.slice(0, 60)}…` : text]));
    else for (let i = 0; i < count; i++) options.push([`#${i}`, this.text("exampleNumber", { number: i + 1 })]);
    return { texts, count, select: this.select(options, "", (value) => value && act(value)) };
  }
}
