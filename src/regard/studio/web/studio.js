// <regard-page class="studio">: the rooms, and what they share: runs, language, theme, address.

import { element } from "regard/panel.js";
import { LANGUAGES } from "regard/texts.js";
import { get } from "studio/api.js";
import "studio/compare.js";
import "studio/edit.js";
import "studio/gallery.js";
import "studio/look.js";
import "studio/train.js";
import "studio/steps.js";
import { say } from "studio/texts.js";

const ROOMS = ["look", "edit", "compare", "workflow", "gallery", "train"];
const SHARING = ["look", "edit", "workflow"]; // rooms that go on with the run and input of each other
const KEY = "regard-studio";

class Studio {
  constructor(root) {
    this.root = root;
    this.runs = [];
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const isKorean = navigator.language.startsWith("ko");
    this.language = kept.language ?? (isKorean ? "ko" : "en");
    this.theme = kept.theme ?? "auto";
    addEventListener("hashchange", () => this.route());
  }

  async start() {
    this.frame();
    this.main.append(element("p", { class: "empty", role: "status" }, say(this.language, "loadingPage")));
    if (await this.refresh()) await this.route();
  }

  /** Read the list of runs, and return whether the server answers; if not, say so and try again. */
  async refresh() {
    try {
      this.runs = (await get("/runs")).runs;
      this.offline.hidden = true;
    } catch (error) {
      this.offline.textContent = error.key ? say(this.language, error.key) : error.message;
      this.offline.hidden = false;
      if (!this.room) this.main.replaceChildren();
      setTimeout(() => this.refresh().then((isBack) => isBack && this.route()), 1500);
    }
    return this.offline.hidden;
  }

  frame() {
    document.documentElement.lang = this.language;
    document.documentElement.dataset.theme = this.theme;
    const text = (key) => say(this.language, key);
    const picker = (name, options, value) => {
      const select = element("select", { id: `studio-${name}`, onchange: () => this.set({ [name]: select.value }) });
      select.append(...options.map(([key, label]) => element("option", { value: key, selected: key === value }, label)));
      return element("span", { class: "field" }, element("label", { for: select.id }, text(name)), select);
    };
    this.links = ROOMS.map((room) => element("a", { href: `#/${room}`, "data-room": room }, text(`room-${room}`)));
    this.offline = element("p", { class: "offline", role: "alert", hidden: true });
    this.main = element("main", { id: "studio-main", tabindex: "-1" });
    this.root.replaceChildren(
      element("a", { class: "skip", href: "#studio-main", onclick: (event) => { event.preventDefault(); this.main.focus(); } }, text("skipToRoom")),
      element("header", { class: "top" },
        element("h1", {}, "regard ", element("span", {}, text("studio"))),
        element("nav", { "aria-label": text("rooms") }, ...this.links),
        element("div", { class: "settings" },
          picker("language", Object.entries(LANGUAGES), this.language),
          picker("theme", ["auto", "light", "dark"].map((theme) => [theme, text(`theme-${theme}`)]), this.theme))),
      this.offline, this.main);
  }

  /** Change the language, for which the room is opened again, or the theme, for which it stays. */
  set(fields) {
    Object.assign(this, fields);
    localStorage.setItem(KEY, JSON.stringify({ language: this.language, theme: this.theme }));
    if (!fields.language) {
      document.documentElement.dataset.theme = this.theme;
      for (const { view } of this.main.querySelectorAll("regard-views")) view?.change({ theme: this.theme });
      return;
    }
    const { hidden, textContent } = this.offline;
    this.frame();
    Object.assign(this.offline, { hidden, textContent });
    this.written = null;
    this.route();
  }

  /** Open the room of the address: #/look?run=dates&text=… */
  async route() {
    const [path, query] = location.hash.slice(1).split("?");
    const name = ROOMS.includes(path.slice(1)) ? path.slice(1) : this.runs.some((run) => run.is_trained) ? "look" : "train";
    if (this.written === location.hash && this.room) return; // written by the room itself
    for (const link of this.links) {
      if (link.dataset.room === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.name = name;
    document.title = `${say(this.language, `room-${name}`)} · regard ${say(this.language, "studio")}`;
    this.room?.leave?.();
    this.room = document.createElement(`studio-${name}`);
    this.main.replaceChildren(this.room);
    try {
      const kept = SHARING.includes(name) ? this.shared : "";
      await this.room.open(this, new URLSearchParams(query ?? kept ?? ""));
    } catch (error) {
      this.room.problem(error);
      if (!(error.status >= 0)) throw error;
    }
    this.room.dataset.ready = "";
  }

  /** Write the address of what a room shows. */
  address(fields) {
    const kept = Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const query = new URLSearchParams(kept).toString();
    if (SHARING.includes(this.name) && fields.run) {
      this.shared = kept.filter(([key]) => ["run", "text", "example"].includes(key));
    }
    this.written = `#/${this.name}${query ? `?${query}` : ""}`;
    history.replaceState(null, "", this.written);
  }
}

const studio = new Studio(document.querySelector("regard-page"));
studio.start();
