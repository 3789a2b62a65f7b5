// Colours of weights: viridis and grey, both readable without colour vision.

const VIRIDIS =
  "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1fa08828ae803fbc735ec96284d44baddc30d8e219fde725";

function between(hex, share) {
  const steps = hex.length / 6 - 1;
  const place = Math.min(Math.max(share, 0), 1) * steps;
  const below = Math.min(Math.floor(place), steps - 1);
  const part = (step, channel) => parseInt(hex.substr(6 * step + 2 * channel, 2), 16);
  return [0, 1, 2].map((channel) =>
    Math.round(part(below, channel) + (place - below) * (part(below + 1, channel) - part(below, channel))),
  );
}

function table(hex) {
  const colors = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) colors.set([...between(hex, i / 255), 255], 4 * i);
  return colors;
}

export const PALETTES = { viridis: table(VIRIDIS), gray: table("000000ffffff") };

/** CSS colour of a weight between 0 and 1. */
export function color(palette, weight) {
  const place = 4 * Math.round(255 * Math.min(Math.max(weight, 0), 1));
  const [red, green, blue] = PALETTES[palette].subarray(place, place + 3);
  return `rgb(${red} ${green} ${blue})`;
}

/** Black or white, whichever is easier to read on the colour of a weight. */
export function ink(palette, weight) {
  const place = 4 * Math.round(255 * Math.min(Math.max(weight, 0), 1));
  const [red, green, blue] = PALETTES[palette].subarray(place, place + 3);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 120 ? "#000" : "#fff";
}

/** Fill ImageData with weights between 0 and 1, row by row. */
export function paint(image, weights, palette) {
  const colors = PALETTES[palette];
  const cells = new Uint32Array(image.data.buffer);
  const table = new Uint32Array(colors.buffer);
  for (let i = 0; i < cells.length; i++) {
    cells[i] = table[Math.min(255, Math.max(0, Math.round(255 * weights[i])))];
  }
  return image;
}

/** CSS colour of a number between −1 (blue) and 1 (orange); 0 is the paper. */
export function signed(share) {
  const strength = Math.round(100 * Math.min(Math.abs(share), 1));
  return `color-mix(in srgb, var(${share < 0 ? "--cold" : "--warm"}) ${strength}%, var(--none))`;
}
