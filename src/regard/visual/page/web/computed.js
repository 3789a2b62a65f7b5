// What attention.js has computed, for the views: a payload that needs no unpacking.

import { Payload, tensorOf } from "regard/payload.js";
import { DenseMap } from "regard/weights.js";

const FORMS = { activated_general: "activated", additive: "additive", concat: "additive" };
const THUMB = 40; // rows and columns

export class Computed extends Payload {
  /**
   * @param {object} call
   * @param {string} call.name
   * @param {[string, string]} call.sides the names of queries and keys
   * @param {[string[], string[]]} call.labels their words
   * @param {object[]} call.heads what `attend` returns, of each head
   * @param {{query, key, value}} call.vectors of each head, matrices
   * @param {object} call.options of `attend`: score, normalize, temperature, mask
   * @param {object} call.layer X, W_Q, W_K, W_V, W_O and the output, as far as there are any:
   *   {inputQuery, inputKey, inputValue, queryWeight, keyWeight, valueWeight, outputWeight, output},
   *   W_Q, W_K and W_V of each head
   */
  constructor({ name, sides, labels, heads, vectors, options, layer = {} }) {
    const [queries, keys] = sides, rows = labels[0].length, columns = labels[1].length;
    const about = {
      name, queries, keys, rows, columns, heads: heads.length, shortName: name, kind: "dense", provenance: {},
      queryLabels: 0, keyLabels: 1, diagnostics: heads.map(({ weights }) => ({ entropy: entropy(weights) })),
      numbers: numbersOf(heads, vectors, options, layer),
    };
    super({ labels, special: labels.map(() => []), traces: [{ label: "", calls: [about] }] }, null);
    this.heads = heads;
    this.restore(0, 0);
  }

  async unpack(call, head) {
    return new DenseMap(Float32Array.from(this.heads[head].weights.flat()), call.rows, call.columns);
  }

  async thumbs() {
    return this.heads.map(({ weights }) => {
      const part = weights.slice(0, THUMB).map((row) => row.slice(0, THUMB));
      return { height: part.length, width: part[0].length, weights: Float32Array.from(part.flat()) };
    });
  }

  async tensor(made) {
    return made;
  }
}

function numbersOf(heads, vectors, { score = "scaled_dot", normalize = "softmax", temperature = 1, mask = null }, layer) {
  const [{ form }] = heads;
  const perHead = (parts) => tensorOf(parts.length, parts[0].length, parts[0][0].length, (head, i) => parts[head][i]);
  const tensors = { query: perHead(vectors.query), key: perHead(vectors.key), value: perHead(vectors.value),
    scores: perHead(heads.map(({ scores, visible }) => scores.map((row, i) => row.map((each, j) => (visible[i][j] ? each : NaN))))),
    sums: perHead(heads.map(({ context }) => context)) };
  if (form.left !== vectors.query[0] || form.right !== vectors.key[0]) {
    Object.assign(tensors, { left: perHead(heads.map((head) => head.form.left)), right: perHead(heads.map((head) => head.form.right)) });
  }
  if (form.vector) tensors.vector = perHead([[form.vector]]);
  for (const [name, part] of Object.entries(layer)) {
    if (part) tensors[name] = perHead(["queryWeight", "keyWeight", "valueWeight"].includes(name) ? part : [part]);
  }
  return {
    score, form: FORMS[score] ?? "dot", scale: form.scale ?? 1, offset: form.bias ?? 0, hasBias: false, hasMask: mask !== null,
    normalizer: normalize, temperature, hasProjections: "queryWeight" in layer, missing: {}, tensors,
  };
}

/** The mean entropy of the rows, in nats. */
export function entropy(weights) {
  const rows = weights.map((row) => row.reduce((sum, weight) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0));
  return rows.reduce((sum, each) => sum + each, 0) / rows.length;
}
