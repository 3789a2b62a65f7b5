// The data of a page: base64 of deflated numbers, unpacked on demand.

import { multiply, transpose, weightsOfRow } from "regard/attention.js";
import { DenseMap, SparseMap } from "regard/weights.js";

const TYPES = { f4: Float32Array, i2: Int16Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const CACHED = 32e6; // cells of maps that stay unpacked
const HIDDEN = -32768; // a score that the mask hides
const PLAIN = ["dot", "scaled_dot"]; // scores of q and k alone

export class Payload {
  /**
   * @param {object} data what there is: labels, traces with calls
   * @param {(name: string) => string | Promise<string>} chunk the base64 text of a name
   */
  constructor(data, chunk) {
    this.data = data;
    this.chunk = chunk;
    this.maps = new Map();
    this.unpacked = new Map(); // numbers, by trace and call
    this.changed = new Map(); // the same after edits
  }

  get traces() {
    return this.data.traces;
  }

  call(trace, call) {
    return this.traces[trace].calls[call];
  }

  labels(call) {
    return [this.data.labels[call.queryLabels], this.data.labels[call.keyLabels]];
  }

  /** The places of special tokens, such as [CLS], among the labels of each side. */
  special(call) {
    return [call.queryLabels, call.keyLabels].map((labels) => new Set(this.data.special[labels]));
  }

  /** The arrays of a bundle: {chunk, arrays: [[name, type, length], …]}. */
  async arrays(bundle) {
    const bytes = await inflate(await this.chunk(bundle.chunk));
    const found = {};
    let place = 0;
    for (const [name, type, length] of bundle.arrays) {
      const size = length * TYPES[type].BYTES_PER_ELEMENT;
      found[name] = new TYPES[type](bytes.slice(place, place + size));
      place += size;
    }
    return found;
  }

  /** The map of one head. */
  async map(trace, call, head) {
    const name = `${trace}/${call}/${head}`;
    if (!this.maps.has(name)) {
      const { rows, columns } = this.call(trace, call);
      if (this.maps.size > 1 && this.maps.size * rows * columns > CACHED) {
        this.maps.delete(this.maps.keys().next().value);
      }
      this.maps.set(name, this.unpack(this.call(trace, call), head));
    }
    return this.maps.get(name);
  }

  async unpack(call, head) {
    const { scale, cells, keys, weights, pooled, poolScale } = await this.arrays(call.maps[head]);
    const { rows, columns } = call;
    if (call.kind === "dense") {
      const exact = call.bits === 16 ? linear(cells, scale, columns, 65535) : rooted(cells, scale, columns, 2 ** call.bits - 1);
      return new DenseMap(exact, rows, columns);
    }
    const [height, width] = call.pool;
    return new SparseMap({
      rows, columns, height, width, keys, k: call.k,
      weights: linear(weights, scale, call.k, 65535),
      pooled: rooted(pooled, poolScale, width),
    });
  }

  /** Small pictures of all heads of a call: [{height, width, weights}, …]. */
  async thumbs(call) {
    const { cells } = await this.arrays(call.thumbs);
    const [height, width] = call.thumbSize;
    const size = height * width;
    return Array.from({ length: call.heads }, (_, head) => ({
      height, width,
      weights: Float32Array.from(cells.subarray(head * size, (head + 1) * size), (c) => (c / 255) ** 2),
    }));
  }

  /** What the steps of a call show, with its tensors as {heads, rows, columns, row(head, i)}; or null. */
  async numbers(trace, call) {
    const name = `${trace}/${call}`, { numbers } = this.call(trace, call);
    if (!numbers) return null;
    if (!this.unpacked.has(name)) {
      const parts = Object.entries(numbers.tensors);
      const tensors = await Promise.all(parts.map(([, stored]) => this.tensor(stored)));
      this.unpacked.set(name, { ...numbers, tensors: Object.fromEntries(parts.map(([part], place) => [part, tensors[place]])) });
    }
    return this.changed.get(name) ?? this.unpacked.get(name);
  }

  async tensor(stored) {
    const { scale, cells } = await this.arrays(stored.bundle);
    const [heads, rows, columns] = stored.shape;
    const values = linear(cells, scale, columns, 32767);
    for (let i = 0; i < cells.length; i++) if (cells[i] === HIDDEN) values[i] = NaN;
    return tensorOf(heads, rows, columns, (head, i) => {
      const start = (head * rows + i) * columns;
      return values.subarray(start, start + columns);
    });
  }

  // ------------------------------------------------------------------ edits of W_Q, W_K and W_V

  /** Whether all that follows from W_Q, W_K and W_V is known. */
  isEditable(trace, call) {
    const numbers = this.call(trace, call).numbers;
    const { queryWeight, keyWeight, valueWeight, projectedQuery, projectedKey, left } = numbers?.tensors ?? {};
    return Boolean(queryWeight && keyWeight && valueWeight && !projectedQuery && !projectedKey && !left
      && PLAIN.includes(numbers.score) && numbers.normalizer);
  }

  isEdited(trace, call) {
    return this.changed.has(`${trace}/${call}`);
  }

  /** Take back all edits of a call. */
  restore(trace, call) {
    this.changed.delete(`${trace}/${call}`);
    for (const name of this.maps.keys()) if (name.startsWith(`${trace}/${call}/`)) this.maps.delete(name);
  }

  /** Change a number of W_Q, W_K or W_V of a head, and compute what follows from it. */
  edit(trace, call, head, name, row, column, value) {
    const place = `${trace}/${call}`, before = this.changed.get(place) ?? this.unpacked.get(place);
    const weight = rowsOf(before.tensors[name], head).map((each) => [...each]);
    weight[row][column] = value;
    const tensors = { ...before.tensors, [name]: withHead(before.tensors[name], head, weight) };
    const { inputQuery, inputKey = inputQuery, inputValue = inputKey } = tensors;
    const project = (input, side) => {
      const bias = tensors[`${side}Bias`]?.row(head, 0);
      return multiply(rowsOf(input, head), rowsOf(tensors[`${side}Weight`], head)).map((each) => each.map((sum, i) => sum + (bias?.[i] ?? 0)));
    };
    const [query, key, values] = [project(inputQuery, "query"), project(inputKey, "key"), project(inputValue, "value")];
    const products = (q, k) => multiply(q, transpose(k)).map((each) => each.map((sum) => before.scale * sum));
    const old = products(rowsOf(before.tensors.query, head), rowsOf(before.tensors.key, head));
    const scores = products(query, key).map((each, i) => each.map((score, j) => {
      const known = before.tensors.scores.row(head, i)[j]; // NaN where a key is hidden
      return Number.isNaN(known) ? NaN : score + (before.hasBias ? known - old[i][j] : 0);
    }));
    const options = { normalize: before.normalizer, temperature: before.temperature };
    const weights = scores.map((each) => weightsOfRow(each, each.map((score) => !Number.isNaN(score)), options));
    const sums = multiply(weights, values);
    const made = { query, key, value: values, scores, sums };
    for (const [part, rows] of Object.entries(made)) tensors[part] = withHead(tensors[part], head, rows, this.call(trace, call).heads);
    if (tensors.output && tensors.outputWeight) {
      const heads = Array.from({ length: this.call(trace, call).heads }, (_, each) => each);
      const joined = query.map((_, i) => heads.flatMap((each) => [...tensors.sums.row(each, i)]));
      const bias = tensors.outputBias?.row(0, 0);
      tensors.output = withHead(tensors.output, 0, multiply(joined, rowsOf(tensors.outputWeight, 0)).map((each) => each.map((sum, i) => sum + (bias?.[i] ?? 0))));
    } else delete tensors.output;
    this.changed.set(place, { ...before, tensors });
    this.maps.set(`${place}/${head}`, new DenseMap(Float32Array.from(weights.flat()), weights.length, weights[0].length));
  }
}

/** A tensor of the steps; with one head, all heads share it. */
export function tensorOf(heads, rows, columns, row) {
  return { heads, rows, columns, row: (head, i) => row(heads === 1 ? 0 : head, i) };
}

function rowsOf(tensor, head) {
  return Array.from({ length: tensor.rows }, (_, i) => tensor.row(head, i));
}

/** A tensor with other rows in one head; `heads` have their own if they shared it. */
function withHead(tensor, head, rows, heads = tensor.heads) {
  return tensorOf(heads, rows.length, rows[0].length, (other, i) => (heads === 1 || other === head ? rows[i] : tensor.row(other, i)));
}

function linear(cells, scale, columns, most) {
  const values = new Float32Array(cells.length);
  for (let i = 0; i < cells.length; i++) values[i] = (cells[i] / most) * scale[(i / columns) | 0];
  return values;
}

function rooted(cells, scale, columns, most = 255) {
  const values = new Float32Array(cells.length);
  for (let row = 0, i = 0; row < scale.length; row++) {
    const unit = scale[row] / most ** 2;
    for (let column = 0; column < columns; column++, i++) values[i] = cells[i] * cells[i] * unit;
  }
  return values;
}

async function inflate(text) {
  const bytes = fromBase64(text);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
