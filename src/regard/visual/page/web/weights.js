// One attention map: rows of weights, links that cover a share of a row, and tiles for drawing.

/** A map whose every weight is known. */
export class DenseMap {
  /**
   * @param {Float32Array} cells M × N weights, row by row
   * @param {number} rows
   * @param {number} columns
   */
  constructor(cells, rows, columns) {
    Object.assign(this, { cells, rows, columns, exact: Infinity });
  }

  get largest() {
    return (this.cached ??= maximum(this.cells));
  }

  cell(query, key) {
    return this.cells[query * this.columns + key];
  }

  row(query) {
    return this.cells.subarray(query * this.columns, (query + 1) * this.columns);
  }

  /** All keys of a query that have weight, largest first: [[key, weight], …]. */
  ranked(query) {
    const row = this.row(query);
    const keys = [];
    for (let key = 0; key < row.length; key++) if (row[key] > 0) keys.push(key);
    keys.sort((a, b) => row[b] - row[a] || a - b);
    return keys.map((key) => [key, row[key]]);
  }

  /** The largest weight of each tile: height × width tiles over the rows and columns given. */
  raster(top, bottom, left, right, height, width) {
    const tiles = new Float32Array(height * width);
    const tileOf = tileIndex(left, right, width);
    for (let query = top; query < bottom; query++) {
      const base = Math.floor(((query - top) * height) / (bottom - top)) * width;
      const start = query * this.columns;
      for (let key = left; key < right; key++) {
        const tile = base + tileOf[key - left];
        const weight = this.cells[start + key];
        if (weight > tiles[tile]) tiles[tile] = weight;
      }
    }
    return tiles;
  }
}

/** A long map: the k largest weights of each row, and a max-pooled picture of all the others. */
export class SparseMap {
  /**
   * @param {{keys, weights, k, rows, columns, pooled, height, width}} parts keys and weights are
   *   rows × k, largest first; pooled is height × width, the largest weight of each tile
   */
  constructor(parts) {
    Object.assign(this, parts);
    this.exact = parts.k;
  }

  get largest() {
    return (this.cached ??= maximum(this.weights));
  }

  cell(query, key) {
    for (let i = query * this.k; i < (query + 1) * this.k; i++) {
      if (this.keys[i] === key && this.weights[i] > 0) return this.weights[i];
    }
    return this.k < this.columns ? null : 0; // null: not among the largest
  }

  /** What a weight that is not among the largest cannot exceed. */
  bound(query, key) {
    const tile =
      Math.floor((query * this.height) / this.rows) * this.width +
      Math.floor((key * this.width) / this.columns);
    return Math.min(this.pooled[tile], this.weights[(query + 1) * this.k - 1]);
  }

  ranked(query) {
    const found = [];
    for (let i = query * this.k; i < (query + 1) * this.k && this.weights[i] > 0; i++) {
      found.push([this.keys[i], this.weights[i]]);
    }
    return found;
  }

  raster(top, bottom, left, right, height, width) {
    const tiles = new Float32Array(height * width);
    const rowOf = (query) => Math.floor(((query - top) * height) / (bottom - top));
    const tileOf = tileIndex(left, right, width);
    // Where a tile of the picture is at least one of the pooled tiles, the pooled map is enough.
    const isCoarse = (bottom - top) * this.height >= height * this.rows * 0.999;
    for (let y = 0; y < height; y++) {
      const first = top + Math.floor((y * (bottom - top)) / height);
      const last = Math.max(first, top + Math.ceil(((y + 1) * (bottom - top)) / height) - 1);
      const from = Math.floor((first * this.height) / this.rows);
      const to = isCoarse ? Math.floor((last * this.height) / this.rows) : from;
      const most = isCoarse ? Infinity : this.weights[(first + 1) * this.k - 1];
      for (let key = left; key < right; key++) {
        const column = Math.floor((key * this.width) / this.columns);
        const tile = y * width + tileOf[key - left];
        for (let band = from; band <= to; band++) {
          const weight = Math.min(this.pooled[band * this.width + column], most);
          if (weight > tiles[tile]) tiles[tile] = weight;
        }
      }
    }
    for (let query = top; query < bottom; query++) {
      const base = rowOf(query) * width;
      for (let i = query * this.k; i < (query + 1) * this.k; i++) {
        const key = this.keys[i];
        if (key < left || key >= right) continue;
        const tile = base + tileOf[key - left];
        if (this.weights[i] > tiles[tile]) tiles[tile] = this.weights[i];
      }
    }
    return tiles;
  }
}

/** The mean of maps of one shape, every weight of which is known. */
export function meanOf(maps) {
  const cells = new Float32Array(maps[0].cells.length);
  for (const map of maps) for (let i = 0; i < cells.length; i++) cells[i] += map.cells[i];
  for (let i = 0; i < cells.length; i++) cells[i] /= maps.length;
  return new DenseMap(cells, maps[0].rows, maps[0].columns);
}

/** The largest weights of a query that together cover a share of its row: [[key, weight], …]. */
export function links(map, query, share, most = 64) {
  const ranked = map.ranked(query);
  const total = map.exact === Infinity ? ranked.reduce((sum, [, weight]) => sum + weight, 0) : 1;
  const found = [];
  let covered = 0;
  for (const link of ranked) {
    if (found.length && (covered >= share * total - 1e-6 || found.length >= most)) break;
    found.push(link);
    covered += link[1];
  }
  return found;
}

function maximum(values) {
  let largest = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > largest) largest = values[i];
  return largest;
}

function tileIndex(left, right, width) {
  const tiles = new Int32Array(right - left);
  for (let i = 0; i < tiles.length; i++) tiles[i] = Math.floor((i * width) / (right - left));
  return tiles;
}
