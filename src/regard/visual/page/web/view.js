// The state that all views share: one attention call, some of its heads, one query, one key.

import { links, meanOf } from "regard/weights.js";
import { nameText, tokenText, translate } from "regard/texts.js";
import { number } from "regard/vector.js";

let count = 0; // of views in the document, whose elements have different ids

export class View extends EventTarget {
  constructor(payload, settings) {
    super();
    this.payload = payload;
    this.prefix = count++ ? `regard${count}` : "regard";
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
      range: "fixed",
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

  /** The name of a sequence or of something recorded. */
  name(name) {
    return nameText(this.language, name);
  }

  /** The weight of the last colour. */
  get top() {
    return this.range === "data" && this.map ? this.map.largest || 1 : 1;
  }

  /** The number of a head in the model: a trace may hold some of the heads. */
  headNumber(head, about = this.about) {
    return about.headNumbers?.[head] ?? head;
  }

  /** The name of the selected head, or of the mean of several; empty if the call has no other. */
  get headName() {
    const { heads, about } = this;
    if (about.heads === 1 && !about.headNumbers) return "";
    return heads.length > 1
      ? this.text("mean", { count: heads.map((head) => this.headNumber(head)).join(", ") })
      : this.text("headShort", { head: this.headNumber(heads[0]) });
  }

  get labels() {
    return this.payload.labels(this.about);
  }

  /** The places of special tokens among the queries and keys. */
  get special() {
    return this.payload.special(this.about);
  }

  text(key, values) {
    return translate(this.language, key, values);
  }

  /** Change some fields and notify every view; a new call or head loads a new map. */
  async change(fields) {
    const changed = Object.keys(fields).filter((name) => this[name] !== fields[name]);
    if (!changed.length) return;
    Object.assign(this, fields);
    if (changed.some((name) => ["trace", "call", "heads"].includes(name))) await this.load(changed);
    else this.notify(changed);
  }

  async load(changed = []) {
    const { rows, columns } = this.about;
    const wanted = `${this.trace}/${this.call}/${this.heads}`;
    this.wanted = wanted;
    const heads = this.heads.map((head) => this.payload.map(this.trace, this.call, head));
    const maps = await Promise.all(heads);
    if (this.wanted !== wanted) return; // another one was selected meanwhile
    this.map = maps.length === 1 ? maps[0] : meanOf(maps);
    if (this.query !== null && this.query >= rows) this.query = null;
    if (this.key !== null && this.key >= columns) this.key = null;
    this.notify([...changed, "map"]);
  }

  /** Point at a query, a key, both or nothing, unless something is pinned. */
  point(query, key) {
    if (!this.locked) this.change({ query, key });
  }

  pin(query, key) {
    const same = this.locked && this.query === query && this.key === key;
    this.change({ query, key, locked: !same });
  }

  unpin() {
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

  /** The selected cell, query or key in a sentence. */
  sentence() {
    const [queries, keys] = this.labels;
    if (this.query === null && this.key === null) return this.text("choose");
    if (this.query === null) {
      const from = this.receivers(this.key).slice(0, 3);
      return from
        .map(([query, weight]) => this.text("received", this.named(queries[query], keys[this.key], weight)))
        .join(" · ") || tokenText(keys[this.key]);
    }
    if (this.key === null) return this.rowSentence(this.query);
    const weight = this.map.cell(this.query, this.key);
    const text = weight === null
      ? this.text("below", { weight: number(this.map.bound(this.query, this.key)) })
      : number(weight);
    return this.text("sentence", { query: tokenText(queries[this.query]), key: tokenText(keys[this.key]), weight: text });
  }

  /** What a query attends to, most first. */
  rowSentence(query) {
    const [queries, keys] = this.labels;
    const found = this.links(query).slice(0, 8);
    if (!found.length) return this.text("nothing", { query: tokenText(queries[query]) });
    return found
      .map(([key, weight], i) => this.text(i ? "also" : "sentence", this.named(queries[query], keys[key], weight)))
      .join(", ");
  }

  named(query, key, weight) {
    return { query: tokenText(query), key: tokenText(key), weight: number(weight) };
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

  notify(changed) {
    this.dispatchEvent(new CustomEvent("change", { detail: new Set(changed) }));
  }
}
