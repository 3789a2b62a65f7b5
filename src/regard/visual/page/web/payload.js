// The data of a page: base64 of deflated numbers, unpacked on demand.

import { DenseMap, SparseMap } from "regard/weights.js";

const TYPES = { f4: Float32Array, i2: Int16Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const CACHED = 32e6; // cells of maps that stay unpacked
const HIDDEN = -32768; // a score that the mask hides

export class Payload {
  /**
   * @param {object} data what there is: labels, traces with calls
   * @param {(name: string) => string | Promise<string>} chunk the base64 text of a name
   */
  constructor(data, chunk) {
    this.data = data;
    this.chunk = chunk;
    this.maps = new Map();
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
      const exact = call.bits === 16 ? linear(cells, scale, columns, 65535) : rooted(cells, scale, columns);
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

  /** A tensor of the step-by-step view, as rows: {heads, rows, columns, row(head, i)}. */
  async tensor(stored) {
    const { scale, cells } = await this.arrays(stored.bundle);
    const [heads, rows, columns] = stored.shape;
    const values = linear(cells, scale, columns, 32767);
    for (let i = 0; i < cells.length; i++) if (cells[i] === HIDDEN) values[i] = NaN;
    return {
      heads, rows, columns,
      row: (head, i) => {
        const start = ((heads === 1 ? 0 : head) * rows + i) * columns;
        return values.subarray(start, start + columns);
      },
    };
  }
}

function linear(cells, scale, columns, most) {
  const values = new Float32Array(cells.length);
  for (let i = 0; i < cells.length; i++) values[i] = (cells[i] / most) * scale[(i / columns) | 0];
  return values;
}

function rooted(cells, scale, columns) {
  const values = new Float32Array(cells.length);
  for (let row = 0, i = 0; row < scale.length; row++) {
    const unit = scale[row] / 65025; // 255²
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
