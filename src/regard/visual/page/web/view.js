// What all views of a page look at: one attention call, some of its heads, one query, one key.

import { links, meanOf } from "regard/weights.js";
import { number, say, shown } from "regard/words.js";

export class View extends EventTarget {
  constructor(payload, settings) {
    super();
    this.payload = payload;
    Object.assign(this, {
      trace: payload.traces.length - 1,
      call: 0,
      heads: [0],
      query: null,
      key: null,
      locked: false,
      share: 0.7,
      colors: "viridis",
      curve: "linear",
      theme: "auto",
      language: "en",
      sort: "byLayer",
      map: null,
    });
    Object.assign(this, settings);
  }

  get about() {
    return this.payload.call(this.trace, this.call);
  }

  get labels() {
    return this.payload.labels(this.about);
  }

  say(word, values) {
    return say(this.language, word, values);
  }

  /** Change some fields and tell every view which; a new call or head brings a new map. */
  async change(fields) {
    const changed = Object.keys(fields).filter((name) => this[name] !== fields[name]);
    if (!changed.length) return;
    Object.assign(this, fields);
    if (changed.some((name) => ["trace", "call", "heads"].includes(name))) await this.load(changed);
    else this.tell(changed);
  }

  async load(changed = []) {
    const { rows, columns } = this.about;
    const wanted = `${this.trace}/${this.call}/${this.heads}`;
    this.wanted = wanted;
    const heads = this.heads.map((head) => this.payload.map(this.trace, this.call, head));
    const maps = await Promise.all(heads);
    if (this.wanted !== wanted) return; // somebody has chosen another meanwhile
    this.map = maps.length === 1 ? maps[0] : meanOf(maps);
    if (this.query !== null && this.query >= rows) this.query = null;
    if (this.key !== null && this.key >= columns) this.key = null;
    this.tell([...changed, "map"]);
  }

  /** Point at a query, a key, both or nothing, unless something is kept. */
  point(query, key) {
    if (!this.locked) this.change({ query, key });
  }

  keep(query, key) {
    const same = this.locked && this.query === query && this.key === key;
    this.change({ query, key, locked: !same });
  }

  release() {
    this.change({ locked: false, query: null, key: null });
  }

  /** The largest weights of a query that cover the share asked for: [[key, weight], …]. */
  links(query) {
    if (this.linked?.map !== this.map || this.linked.share !== this.share) {
      this.linked = { map: this.map, share: this.share, found: new Map() };
    }
    const { found } = this.linked;
    if (!found.has(query)) found.set(query, links(this.map, query, this.share));
    return found.get(query);
  }

  /** The chosen cell, query or key in a sentence. */
  sentence() {
    const [queries, keys] = this.labels;
    if (this.query === null && this.key === null) return this.say("choose");
    if (this.query === null) {
      const from = this.receivers(this.key).slice(0, 3);
      return from
        .map(([query, weight]) => this.say("received", this.named(queries[query], keys[this.key], weight)))
        .join(" · ") || shown(keys[this.key]);
    }
    if (this.key === null) return this.rowSentence(this.query);
    const weight = this.map.cell(this.query, this.key);
    const text = weight === null
      ? this.say("below", { weight: number(this.map.bound(this.query, this.key)) })
      : number(weight);
    return this.say("sentence", { query: shown(queries[this.query]), key: shown(keys[this.key]), weight: text });
  }

  /** What a query attends to, most first. */
  rowSentence(query) {
    const [queries, keys] = this.labels;
    const found = this.links(query).slice(0, 8);
    if (!found.length) return this.say("nothing", { query: shown(queries[query]) });
    return found
      .map(([key, weight], i) => this.say(i ? "also" : "sentence", this.named(queries[query], keys[key], weight)))
      .join(", ");
  }

  named(query, key, weight) {
    return { query: shown(query), key: shown(key), weight: number(weight) };
  }

  /** Queries that attend to a key, most first: [[query, weight], …]. */
  receivers(key) {
    const found = [];
    for (let query = 0; query < this.map.rows; query++) {
      const weight = this.map.cell(query, key);
      if (weight) found.push([query, weight]);
    }
    return found.sort((a, b) => b[1] - a[1]);
  }

  tell(changed) {
    this.dispatchEvent(new CustomEvent("change", { detail: new Set(changed) }));
  }
}
