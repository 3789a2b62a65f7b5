// What each live figure begins with: the example of its chapter.

import { sinusoids } from "regard/attention.js";
import { animal, how, slots } from "regard/figure_data.js";

const identity = (size) => Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => (i === j ? 1 : 0)));

/**
 * Each preset has what the reader may change (score, mask, normalizer, numbers, words), and one of
 * - query, key, value: matrices of numbers, and the labels of queries and keys;
 * - text: words, whose vectors `of` makes, for W_Q, W_K, W_V and W_O if there is a `layer`;
 * - lengths: samples of so many words each, padded to the longest.
 */
export const PRESETS = {
  copy: {
    text: "s t u d e n t", of: (words) => spread(words, 16), score: "dot",
  },
  fruits: {
    labels: [["sweet and red", "sweet", "sour", "anything"], ["apple", "lemon", "banana"]],
    query: [[4, 0, 4, 0], [4, 0, 0, 0], [0, 4, 0, 0], [0, 0, 0, 0]],
    key: [[1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]], value: [[3], [1], [2]],
  },
  plane: {
    labels: [["q"], ["(2, 1)", "(4, 2)", "(1, 2)", "(−1, 2)", "(−2, −1)", "(0, 0)"]],
    query: [[2, 1]], key: [[2, 1], [4, 2], [1, 2], [-1, 2], [-2, -1], [0, 0]], value: identity(6), score: "dot",
    parameters: {
      general: { weight: [[0, 1], [-1, 0]] },
      additive: { queryWeight: [[-1, 0], [-3, 0], [0, -1], [0, -3]], keyWeight: [[2, 0], [2, 0], [0, 2], [0, 2]], vector: [1, -1, 1, -1] },
      concat: { weight: [[-1, 0, 2, 0], [-3, 0, 2, 0], [0, -1, 0, 2], [0, -3, 0, 2]], vector: [1, -1, 1, -1] },
    },
  },
  lengths: { lengths: [5, 8, 3], of: (words) => random(words.length, 16, 7), mask: "padding" },
  states: {
    labels: [["h"], ["hs₁", "hs₂", "hs₃"]], query: [[0, 1]], key: [[3, 0], [0, 3], [1, 1]], value: [[3, 0], [0, 3], [1, 1]], score: "dot",
  },
  how,
  row: {
    labels: [["s"], ["2.0", "1.6", "1.0", "−1.0"]], query: [[2, 1.6, 1, -1]], key: identity(4), value: identity(4), score: "dot",
  },
  student: {
    text: "I am a student", of: (words) => spread(words, 512), layer: (width) => project([width, 64], [width, 64], [width, 64]),
  },
  nodes: {
    text: "0 1 2 3 4", of: (words) => spread(words, 8), mask: "cells",
    cells: [[1, 1, 0, 0, 1], [1, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 0, 0, 1, 1]],
  },
  michael: {
    text: "Michael said that he was tired", of: (words) => spread(words, 512), heads: 8,
    layer: (width) => project([width, width], [width, width], [width, width], [width, width]),
  },
  dog: {
    text: "dog bites man", of: (words, { positions }) => add(spread(words, 16), positions ? sinusoids(words.length, 16) : null), positions: true, heads: 2,
    layer: (width) => project([width, width], [width, width], [width, width], [width, width]),
  },
  pairs: { text: "0 1 2 3 4 5 6 7 8 9 10 11", of: (words) => spread(words, 16), mask: "window", left: 2, right: 2 },
  slots: { labels: [["k"], Array.from({ length: 8 }, (_, slot) => String(slot))], ...slots, value: slots.key, score: "cosine", parameters: { cosine: { beta: 8 } } },
  films: {
    labels: [["child", "adult", "half"], ["Robots", "The Bear", "The Trench", "In Court", "Funny Judge"]],
    query: [[1, 0], [0, 1], [0.5, 0.5]], key: [[1, 0, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 1]],
    value: random(5, 8, 3).map((row) => row.map((each) => Number(each.toFixed(1)))),
    layer: () => ({ W_Q: [[3, -1], [0, 3]], W_K: [[1, 0], [0, 1], [0.7, 0], [0, 0.8]], W_V: identity(8) }),
  },
  widths: {
    labels: [["q₁", "q₂"], ["k₁", "k₂", "k₃"]], query: [[1, 0, 2, 0], [0, 1, 0, 1]], key: [[1, 0, 1], [0, 2, 0], [1, 1, 0]], value: [[1, 0], [0, 1], [2, 2]],
    score: "general", parameters: { general: { weight: [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0, 0]] } },
  },
  sink: {
    labels: [["q"], ["k₁", "k₂", "k₃", "k₄"]], query: [[-4, -4, -4, -4]], key: identity(4), value: identity(4), score: "dot", normalize: "sink",
  },
  animal,
};

/** The words of a text. */
export function wordsOf(text) {
  return text.split(/\s+/).filter(Boolean);
}

/** Random numbers of mean 0 and variance 1 (uniform ones are made fastest), the same every time. */
export function random(rows, columns, seed, size = 1) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return size * Math.sqrt(12) * (((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32 - 0.5);
  };
  return Array.from({ length: rows }, () => {
    const row = new Array(columns);
    for (let i = 0; i < columns; i++) row[i] = next();
    return row;
  });
}

/** A random vector for each word, the same for the same word. */
function spread(words, width) {
  return words.map((word) => {
    let seed = 17;
    for (const letter of word) seed = (Math.imul(seed, 31) + letter.codePointAt(0)) | 0;
    return random(1, width, seed)[0];
  });
}

/** W_Q, W_K, W_V and W_O of these sizes, so that products keep the size of their inputs. */
function project(...sizes) {
  const names = ["W_Q", "W_K", "W_V", "W_O"];
  return Object.fromEntries(sizes.map(([rows, columns], i) =>
    [names[i], random(rows, columns, i + 1, 1 / Math.sqrt(rows))]));
}

function add(rows, others) {
  return others ? rows.map((row, i) => row.map((each, j) => each + others[i][j])) : rows;
}

/** Parameters of a score for these widths, before anything is learned: W is 1 on its diagonal. */
export function parametersOf(score, queryWidth, keyWidth, keys) {
  const eye = (rows, columns) => Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => (i === j ? 1 : 0)));
  const hidden = Math.min(queryWidth, keyWidth);
  return {
    general: { weight: eye(queryWidth, keyWidth) },
    biased_general: { weight: eye(keyWidth, queryWidth), bias: Array(keyWidth).fill(0.5) },
    activated_general: { weight: eye(keyWidth, queryWidth), bias: 0 },
    additive: { queryWeight: eye(hidden, queryWidth), keyWeight: eye(hidden, keyWidth), vector: Array(hidden).fill(1) },
    concat: { weight: eye(hidden, queryWidth).map((row, i) => [...row, ...eye(hidden, keyWidth)[i]]), vector: Array(hidden).fill(1) },
    location: { weight: random(keys, queryWidth, 5) },
    cosine: { beta: 1 },
  }[score];
}
