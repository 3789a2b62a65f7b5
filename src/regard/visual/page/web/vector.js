// A vector as a strip of colours, blue below and orange above zero, with its first numbers.

import { element } from "regard/panel.js";

const COLD = [33, 102, 172], WARM = [190, 90, 10];

/**
 * @param {ArrayLike<number>} values
 * @param {string} label the name of the vector
 * @param {number} [most] the value of the strongest colour; by default the largest of the vector
 */
export function strip(values, label, most = largest(values)) {
  const canvas = element("canvas", { width: values.length, height: 1, class: "vector", "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(values.length, 1);
  for (let i = 0; i < values.length; i++) {
    const share = most ? Math.min(Math.abs(values[i]) / most, 1) : 0;
    image.data.set([...(values[i] < 0 ? COLD : WARM), Math.round(255 * share)], 4 * i);
  }
  context.putImageData(image, 0, 0);
  const first = Array.from(values.slice(0, 4), digits).join("  ");
  const more = values.length > 4 ? " …" : "";
  return element("span", { class: "strip", title: `${label} (${values.length})` },
    canvas, element("span", { class: "numbers" }, `${first}${more}`));
}

export function largest(values) {
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  return most;
}

/** A number with three significant digits. */
export function digits(value) {
  if (Number.isNaN(value)) return "−∞";
  const text = Math.abs(value) >= 1000 || (value !== 0 && Math.abs(value) < 0.001)
    ? value.toExponential(1) : value.toPrecision(3);
  return text.replace("-", "−");
}

/** A weight with two or three digits. */
export function number(weight) {
  if (weight === 0) return "0";
  return weight >= 0.00995 ? weight.toFixed(2) : weight >= 0.001 ? weight.toFixed(3) : "<0.001";
}
