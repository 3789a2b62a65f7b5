// <studio-train>: choose a recipe or a file, start a training, and watch it.

import { element } from "regard/panel.js";
import "regard/views.js";
import { ApiError, events, get, Latest, post } from "studio/api.js";
import { lines } from "studio/chart.js";
import { InputRoom } from "studio/input_room.js";

const QUICK = ["dates", "copy", "reverse", "addition", "opposites", "classify", "pair", "recommend", "graph", "memory", "image", "language", "hard"];
const LARGEST = 16 * 2 ** 20;
const UPLOADS = { // what a file of one's own may hold: its columns and the settings to begin with
  translate: { columns: ["source", "target"], settings: { "training.epochs": "10", "training.lr": "0.005" } },
  classify: { columns: ["document", "label"], settings: { "training.epochs": "8", "training.lr": "0.01" } },
  language: { columns: ["document"], settings: { "training.epochs": "6", "training.lr": "0.003" } },
};

export class TrainRoom extends InputRoom {
  sections = ["strip", "heatmap"];

  async build() {
    this.latest = new Latest();
    this.points = new Map();
    this.append(element("div", { class: "intro" }, element("h2", {}, this.text("room-train")), element("p", { class: "small" }, this.text("trainHelp"))));
    const { recipes } = await get("/recipes");
    this.recipes = recipes;
    this.form = element("form", { class: "train-form", onsubmit: (event) => { event.preventDefault(); this.start(); } });
    this.list = element("ul", { class: "trainings", "aria-label": this.text("trainings") });
    this.live = element("section", { class: "training", hidden: true });
    this.append(element("div", { class: "train-columns" },
      element("section", { class: "answer", "aria-label": this.text("newTraining") }, element("h3", {}, this.text("newTraining")), this.form),
      element("div", {}, element("section", { class: "answer", "aria-label": this.text("trainings") }, element("h3", {}, this.text("trainings")), this.list), this.live)));
    this.fillForm(this.given.get("recipe") ?? "dates");
    await this.fillList();
    const run = this.given.get("run");
    if (run && this.studio.runs.some((each) => each.name === run)) this.follow(run);
  }

  // ------------------------------------------------------------------ a new training

  fillForm(name) {
    const quick = this.recipes.filter((recipe) => QUICK.includes(recipe.name));
    const others = this.recipes.filter((recipe) => !QUICK.includes(recipe.name));
    const known = this.recipes.find((recipe) => recipe.name === name) ?? quick[0];
    const option = (recipe) => element("option", { value: recipe.name, selected: recipe === known }, `${recipe.name}: ${recipe.description}`);
    const picker = element("select", { onchange: () => { this.upload = null; this.fillForm(picker.value); } },
      element("optgroup", { label: this.text("generated") }, ...quick.map(option)), element("optgroup", { label: this.text("needsData") }, ...others.map(option)));
    this.file = element("input", { type: "file", accept: ".tsv,.csv,.jsonl,.txt", onchange: () => this.file.files[0] && this.take(this.file.files[0]) });
    this.drop = element("div", {
      class: "drop",
      ondragover: (event) => { event.preventDefault(); this.drop.classList.add("over"); },
      ondragleave: () => this.drop.classList.remove("over"),
      ondrop: (event) => { event.preventDefault(); this.drop.classList.remove("over"); if (event.dataTransfer.files[0]) this.take(event.dataTransfer.files[0]); },
    }, this.control("upload", this.file, this.text("ownFile")), this.control("task", this.kinds()), element("p", { class: "small" }, this.text(`ownFileHelp-${this.task}`)));
    this.preview ??= element("div", { class: "preview" });
    if (!this.upload) this.preview.replaceChildren();
    const settings = this.upload ? UPLOADS[this.task].settings : known.settings;
    this.inputs = Object.entries(settings).map(([key, value]) => [key, value, this.settingInput(key, value)]);
    const fields = this.inputs.map(([key, , input]) => this.control(key, input, this.text(`set-${key}`)));
    this.extra = element("input", { type: "text", spellcheck: "false", placeholder: "training.warmup=100 model.embedding=32" });
    this.name = element("input", { type: "text", required: true, maxlength: "60", value: this.freeName(this.upload ? "mine" : known.name), pattern: "[A-Za-z0-9가-힣][A-Za-z0-9가-힣._\\-]*" });
    this.recipe = known.name;
    this.form.replaceChildren(this.control("recipe", picker), this.drop, this.preview, element("div", { class: "form" }, ...fields),
      this.control("settings", this.extra), this.control("name", this.name), element("button", { type: "submit", class: "primary" }, this.text("start")));
  }

  /** What is in a file of one's own; a file that is chosen already is checked again. */
  kinds() {
    this.task ??= "translate";
    const options = Object.keys(UPLOADS).map((task) => [task, this.text(`ownFile-${task}`)]);
    return this.select(options, this.task, (task) => {
      this.task = task;
      this.upload = null;
      this.fillForm(this.recipe);
      if (this.taken) this.take(this.taken);
    });
  }

  settingInput(key, value) {
    if (key === "model.kind" && ["luong", "bahdanau", "transformer", "plain", "peeky", "gnmt"].includes(value)) {
      return this.select([["luong"], ["bahdanau"], ["transformer"], ["plain", this.text("plainModel")]], value, () => {});
    }
    return element("input", { type: "text", value, inputmode: Number.isFinite(Number(value)) ? "decimal" : "text" });
  }

  freeName(name) {
    const taken = new Set(this.studio.runs.map((run) => run.name));
    let free = name;
    for (let i = 2; taken.has(free); i++) free = `${name}-${i}`;
    return free;
  }

  /** Check a file and show its first rows. */
  async take(file) {
    this.taken = file;
    try {
      if (file.size > LARGEST) throw new ApiError(this.text("fileTooLarge"), { field: "upload", status: 413 });
      let text;
      try {
        text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      } catch {
        throw new ApiError(this.text("fileNotText"), { field: "upload", status: 422 });
      }
      const found = await post("/uploads", { name: file.name, text, task: this.task }).catch((error) => {
        throw new ApiError(error.message, { field: "upload", status: error.status });
      });
      this.upload = found.upload;
      this.fillForm(this.recipe);
      this.name.value = this.freeName(file.name.replace(/\.\w+$/, "").replace(/[^A-Za-z0-9가-힣._-]/g, "-").replace(/^[^A-Za-z0-9가-힣]+/, "") || "mine");
      const rows = found.rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", { dir: "auto" }, cell))));
      const problems = found.skipped ? element("p", { class: "small" }, this.text("skipped", { count: found.skipped, problems: found.problems.join("; ") })) : null;
      this.preview.replaceChildren(element("p", { role: "status" }, this.text(`previewed-${this.task}`, { name: file.name, count: found.count })), ...(problems ? [problems] : []),
        element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": this.text("preview") }, element("table", {}, element("thead", {}, element("tr", {}, ...UPLOADS[this.task].columns.map((column) => element("th", { scope: "col" }, this.text(column))))), element("tbody", {}, ...rows))));
      this.problem(null);
    } catch (error) {
      this.problem(error, "upload");
    }
  }

  async start() {
    const changed = this.inputs.filter(([, value, input]) => this.upload || input.value !== value).map(([key, , input]) => `${key}=${input.value.trim()}`);
    const settings = [...changed, ...this.extra.value.split(/\s+/).filter(Boolean)];
    const source = this.upload ? { upload: this.upload } : { recipe: this.recipe };
    try {
      const { run } = await post("/training", { name: this.name.value, settings, ...source });
      this.problem(null);
      await this.fillList();
      this.follow(run);
    } catch (error) {
      this.problem(error, "settings");
    }
  }

  // ------------------------------------------------------------------ trainings

  async fillList() {
    await this.studio.refresh();
    const runs = this.studio.runs.filter((run) => run.state !== "unknown");
    this.list.replaceChildren(...runs.map((run) => element("li", {},
      element("button", { type: "button", onclick: () => this.follow(run.name) }, run.name), " ",
      element("span", { class: `state ${run.state}` }, this.text(`state-${run.state}`)))));
    if (!runs.length) this.list.replaceChildren(element("li", { class: "small" }, this.text("noTrainings")));
  }

  /** Follow a training: its curve, its checkpoints, and the attention of one example. */
  follow(run) {
    this.following?.abort();
    const controller = (this.following = new AbortController());
    this.remember({ run });
    this.run = run;
    this.points = new Map();
    this.seen = null;
    this.exampleText = this.given.get("run") === run ? this.given.get("text") ?? "" : "";
    this.status = element("p", { role: "status", class: "status" });
    this.buttons = element("div", { class: "tools" });
    this.curve = element("div", { class: "curve" });
    this.slider = element("input", { type: "range", min: "0", max: "0", value: "0", oninput: () => { this.pinned = true; this.redraw(); } });
    this.stepOutput = element("output");
    this.input = element("input", { type: "text", dir: "auto", value: this.exampleText, oninput: () => { this.exampleText = this.input.value; this.remember({ text: this.input.value }); clearTimeout(this.timer); this.timer = setTimeout(() => this.redraw(), 100); } });
    const step = this.control("checkpoint", this.slider);
    step.append(this.stepOutput);
    this.stepField = step;
    this.output = element("p", { class: "output", dir: "auto" });
    this.views = document.createElement("regard-views");
    this.pinned = false;
    const problem = element("p", { class: "problem", role: "alert", hidden: true });
    const head = element("div", { class: "heading" }, element("h3", {}, run), this.buttons);
    head.dataset.field = "action";
    this.live.hidden = false;
    this.live.replaceChildren(head, problem, this.status, this.curve,
      element("div", { class: "form" }, step, this.control("text", this.input, this.text("watchedExample"))), this.output, this.views);
    this.stream(run, controller.signal);
  }

  async stream(run, signal) {
    for (let known = 0; !signal.aborted && this.isConnected;) {
      let ended = false;
      try {
        await events(`/training/events?run=${encodeURIComponent(run)}&after=${known}`, (progress) => {
          for (const point of progress.points) this.points.set(`${point.step} ${point.loss} ${Object.keys(point.valid)}`, point);
          known = progress.known;
          ended = !["running", "paused"].includes(progress.state);
          this.show(progress);
        }, signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        this.status.textContent = error.key ? this.text(error.key) : error.message;
        if (error.status) return;
      }
      if (ended) return;
      await new Promise((done) => setTimeout(done, 1500));
    }
  }

  show(progress) {
    this.progress = progress;
    const points = [...this.points.values()].sort((a, b) => a.step - b.step);
    const losses = points.filter((point) => point.loss !== null);
    const valid = points.filter((point) => Object.keys(point.valid).length);
    const metric = progress.metric ?? this.metric;
    this.metric = metric;
    const best = valid.at(-1);
    const numbers = best ? `${this.text("heldOut")}: ${Object.entries(best.valid).map(([name, value]) => `${name} ${value.toFixed(3)}`).join(", ")}` : "";
    this.status.textContent = [this.text(`state-${progress.state}`), this.text("atStep", { step: points.at(-1)?.step ?? 0 }), losses.length ? `loss ${losses.at(-1).loss.toFixed(3)}` : "", numbers, progress.message ?? ""].filter(Boolean).join(" · ");
    this.status.className = `status ${progress.state}`;
    const curves = [{ name: this.text("trainingLoss"), points: losses.map((p) => [p.step, p.loss]), color: "var(--accent)" }];
    const second = metric ? lines([{ name: metric, points: valid.map((p) => [p.step, p.valid[metric]]), color: "var(--other)" }], { x: this.text("step"), y: metric, title: metric }) : null;
    this.curve.replaceChildren(lines(curves, { x: this.text("step"), y: "loss", title: this.text("trainingLoss") }), ...(second ? [second] : []));
    const wanted = { running: ["pause", "stop"], paused: ["resume", "stop"], stopped: ["resume"], failed: ["resume"] }[progress.state] ?? [];
    const key = wanted.join();
    if (this.wanted !== key) this.buttons.replaceChildren(...wanted.map((action) => this.button(action, () => this.act(action))));
    this.wanted = key;
    if (progress.state === "finished" && !this.buttons.children.length) {
      this.buttons.replaceChildren(element("a", { href: `#/look?run=${encodeURIComponent(this.run)}`, onclick: () => this.studio.refresh() }, this.text("lookAtIt")));
      this.fillList();
    }
    const count = progress.checkpoints.length;
    this.stepField.hidden = !count;
    if (!count || this.seen === String(progress.checkpoints)) return;
    this.seen = String(progress.checkpoints);
    this.slider.max = String(count - 1);
    if (!this.pinned) this.slider.value = this.slider.max;
    this.redraw();
  }

  /** Draw the attention of the watched example at the chosen checkpoint. */
  async redraw() {
    const checkpoint = this.progress?.checkpoints[Number(this.slider.value)];
    if (checkpoint === undefined) return;
    this.stepOutput.textContent = this.text("atStep", { step: checkpoint });
    this.slider.setAttribute("aria-valuetext", this.stepOutput.textContent);
    const { run } = this;
    const input = this.exampleText ? { text: this.exampleText } : { example: 0 };
    try {
      const looked = await this.latest.run((signal) => post("/look", { run, checkpoint, beam: 1, ...input }, { signal }));
      if (!looked || run !== this.run) return;
      if (!this.exampleText && looked.text) this.input.value = this.exampleText = looked.text;
      this.output.textContent = looked.output;
      this.problem(null);
      await this.showViews(this.views, looked.page);
      this.dataset.drawn = String(checkpoint);
    } catch (error) {
      if (error.status !== 404) this.problem(error, "text");
    }
  }

  async act(action) {
    try {
      this.show(await post("/training/control", { run: this.run, action }));
      if (action === "resume") this.follow(this.run);
    } catch (error) {
      this.problem(error, "action");
    }
  }

  viewed() {}

  leave() {
    this.following?.abort();
    super.leave();
  }
}

customElements.define("studio-train", TrainRoom);
