// Attention on rows of numbers: score → mask → normalize → weighted sum. A matrix is an array of rows.

/** Scores as products: of left · right, times a scale, or of a vector with tanh(left + right). */
export const SCORES = {
  dot: (query, key) => ({ left: query, right: key }),
  scaled_dot: (query, key) => ({ left: query, right: key, scale: 1 / Math.sqrt(query[0].length) }),
  general: (query, key, { weight }) => ({ left: multiply(query, weight), right: key }),
  biased_general: (query, key, { weight, bias }) => ({
    left: multiply(query, transpose(weight)).map((row) => row.map((value, i) => value + bias[i])), right: key,
  }),
  activated_general: (query, key, { weight, bias }) => ({ left: multiply(query, transpose(weight)), right: key, bias }),
  additive: (query, key, { queryWeight, keyWeight, vector }) => ({
    left: multiply(query, transpose(queryWeight)), right: multiply(key, transpose(keyWeight)), vector,
  }),
  concat: (query, key, { weight, vector }) => {
    const width = query[0].length;
    return SCORES.additive(query, key, {
      queryWeight: weight.map((row) => row.slice(0, width)), keyWeight: weight.map((row) => row.slice(width)), vector,
    });
  },
  cosine: (query, key, { beta = 1 } = {}) => ({ left: query.map((row) => unit(row, beta)), right: key.map((row) => unit(row)) }),
  location: (query, key, { weight }) => ({ left: query, right: weight.slice(0, key.length) }),
};

/** The score of one pair: q · k times a scale, or w · tanh(q + k), or tanh(q · k + b). */
export function scoreOfPair({ scale = 1, vector, bias }, left, right) {
  if (vector) return vector.reduce((sum, weight, i) => sum + weight * Math.tanh(left[i] + right[i]), 0);
  const score = scale * dot(left, right);
  return bias === undefined ? score : Math.tanh(score + bias);
}

/** Masks: whether query i of M may attend to key j of N. The last query is at the last key. */
export const MASKS = {
  causal: () => (i, j, M, N) => j <= i + N - M,
  window: (left, right) => (i, j, M, N) => j >= i + N - M - left && j <= i + N - M + right,
  padding: (length) => (i, j) => j < length,
  segments: (queryIds, keyIds = queryIds) => (i, j) => queryIds[i] === keyIds[j],
  visible: (cells) => (i, j) => Boolean(cells[i][j]),
  both: (...masks) => (...place) => masks.every((mask) => mask(...place)),
};

/** Normalizers: from the visible scores of a row, at least one, to their weights. */
export const NORMALIZERS = {
  softmax: (scores) => {
    const { terms, sum } = exponentials(scores);
    return terms.map((term) => term / sum);
  },
  sparsemax: (scores) => {
    const below = scores.map((score) => score - largest(scores)); // small numbers, however large the scores
    const tau = threshold(below, (ordered, size) => (total(ordered.slice(0, size)) - 1) / size);
    return below.map((score) => Math.max(score - tau, 0));
  },
  entmax15: (scores) => {
    const below = scores.map((score) => (score - largest(scores)) / 2);
    const tau = threshold(below, (ordered, size) => {
      const support = ordered.slice(0, size), mean = total(support) / size;
      const spread = total(support.map((value) => (value - mean) ** 2));
      return spread > 1 ? Infinity : mean - Math.sqrt((1 - spread) / size);
    });
    return below.map((score) => Math.max(score - tau, 0) ** 2);
  },
  hard: (scores) => {
    const best = scores.indexOf(largest(scores));
    return scores.map((_, key) => (key === best ? 1 : 0));
  },
  sigmoid: (scores) => scores.map((score) => 1 / (1 + Math.exp(-score))),
  sink: (scores) => NORMALIZERS.softmax([...scores, 0]).slice(0, -1),
};

/** e^(score − shift), their sum, and the shift: 0 unless a power could be too large to read. */
export function exponentials(scores) {
  const most = largest(scores);
  const shift = Math.abs(most) > 20 ? most : 0;
  const terms = scores.map((score) => Math.exp(score - shift));
  return { terms, sum: total(terms), shift };
}

/** The threshold of a sparse normalizer: that of the most largest scores which all lie above it. */
function threshold(scores, tauOf) {
  const ordered = [...scores].sort((a, b) => b - a);
  let tau = tauOf(ordered, 1);
  for (let size = 2; size <= ordered.length; size++) {
    const next = tauOf(ordered, size);
    if (!(next < ordered[size - 1])) break;
    tau = next;
  }
  return tau;
}

/**
 * The weights of a row of scores; hidden keys have 0, and so have all of a query that sees nothing.
 * @param {number[]} scores
 * @param {boolean[]} visible
 * @param {{normalize: string, temperature: number, sink: number?}} options
 */
export function weightsOfRow(scores, visible, { normalize = "softmax", temperature = 1, sink = null } = {}) {
  const keys = scores.map((_, key) => key).filter((key) => visible[key]);
  const weights = scores.map(() => 0);
  if (!keys.length) return weights;
  const seen = keys.map((key) => scores[key] / temperature);
  if (sink !== null) seen.push(sink);
  const found = NORMALIZERS[normalize](seen);
  keys.forEach((key, place) => { weights[key] = found[place]; });
  return weights;
}

/**
 * Attention of queries (M × D) to keys (N × D) and values (N × Dv).
 * @returns {{form, scores, visible, weights, context}} each step, a row for each query
 */
export function attend(query, key, value, { score = "scaled_dot", parameters, mask = null, ...normalizer } = {}) {
  const form = SCORES[score](query, key, parameters);
  const scores = query.map((_, i) => key.map((_, j) => scoreOfPair(form, form.left[i], form.right[j])));
  const visible = scores.map((row, i) => row.map((_, j) => !mask || mask(i, j, query.length, key.length)));
  const weights = scores.map((row, i) => weightsOfRow(row, visible[i], normalizer));
  return { form, scores, visible, weights, context: multiply(weights, value) };
}

/**
 * Attention in several heads: X·W_Q, Y·W_K and Z·W_V are cut into heads, whose contexts are joined
 * and multiplied by W_O.
 * @param {{heads: number, W_Q, W_K, W_V, W_O}} layer matrices, inputs × outputs; W_O may be missing
 */
export function multiHead(x, y, z, { heads = 1, W_Q, W_K, W_V, W_O }, options) {
  const parts = [[x, W_Q], [y, W_K], [z, W_V]];
  const [query, key, value] = parts.map(([rows, weight]) => cutIntoHeads(multiply(rows, weight), heads));
  const found = query.map((_, head) => attend(query[head], key[head], value[head], options));
  const joined = x.map((_, i) => found.flatMap(({ context }) => context[i]));
  return { query, key, value, heads: found, joined, output: W_O ? multiply(joined, W_O) : joined };
}

/** The columns of each head. */
export function cutIntoHeads(rows, heads) {
  const width = rows[0].length / heads;
  return Array.from({ length: heads }, (_, head) => rows.map((row) => row.slice(head * width, (head + 1) * width)));
}

/** The parameters of an additive score that has learned nothing: the sum of tanh(q + k). */
export function plainAdditive(width) {
  const same = Array.from({ length: width }, (_, i) => Array.from({ length: width }, (_, j) => (i === j ? 1 : 0)));
  return { queryWeight: same, keyWeight: same, vector: Array(width).fill(1) };
}

/** A vector of length √letters for each word, by the letters in it; syllables of Hangul are taken apart. */
export function letterVectors(words) {
  const spelled = words.map((word) => [...word.toLowerCase().normalize("NFD")]);
  const letters = [...new Set(spelled.flat())].sort();
  const counts = spelled.map((word) => letters.map((letter) => word.filter((each) => each === letter).length));
  return counts.map((row) => unit(row, Math.sqrt(letters.length)));
}

/** Positions as sinusoids: sin and cos of p / 10000^(2i / width), in turns. */
export function sinusoids(length, width) {
  return Array.from({ length }, (_, place) => Array.from({ length: width }, (_, i) => {
    const angle = place / 10000 ** ((2 * Math.floor(i / 2)) / width);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  }));
}

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** The product of two matrices. */
export function multiply(a, b) {
  return Array.from(a, (row) => {
    const sums = new Array(b[0]?.length ?? 0).fill(0);
    for (let k = 0; k < row.length; k++) {
      if (row[k] === 0) continue; // what is hidden may be NaN
      for (let j = 0; j < sums.length; j++) sums[j] += row[k] * b[k][j];
    }
    return sums;
  });
}

export function transpose(rows) {
  return rows.length ? Array.from(rows[0], (_, column) => rows.map((row) => row[column])) : [];
}

export function largest(values) {
  return values.reduce((a, b) => Math.max(a, b));
}

export function total(values) {
  let sum = 0;
  for (const value of values) sum += value;
  return sum;
}

/** A vector with another length; a zero vector stays zero. */
function unit(row, length = 1) {
  const own = Math.sqrt(dot(row, row));
  return own ? row.map((value) => (value / own) * length) : row;
}
