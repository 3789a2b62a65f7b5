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

/** The place of a weight in the palette, 0 to 255; the square root brings out small weights. */
function level({ curve, top = 1 }, weight) {
  const share = Math.min(Math.max(weight / top, 0), 1);
  return Math.round(255 * (curve === "root" ? Math.sqrt(share) : share));
}

function channels(look, weight) {
  const place = 4 * level(look, weight);
  return PALETTES[look.colors].subarray(place, place + 3);
}

/**
 * CSS colour of a weight between 0 and 1.
 * @param {{colors: string, curve: string, top: number}} look such as the view
 */
export function color(look, weight) {
  return `rgb(${[...channels(look, weight)].join(" ")})`;
}

/** Black or white, whichever has more contrast with the colour of a weight. */
export function ink(look, weight) {
  const [red, green, blue] = Array.from(channels(look, weight), (each) => (each / 255) ** 2.2); // light
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000" : "#fff";
}

/** Fill ImageData with weights between 0 and 1, row by row. */
export function paint(image, weights, look) {
  const cells = new Uint32Array(image.data.buffer);
  const table = new Uint32Array(PALETTES[look.colors].buffer);
  const { curve, top } = look; // reading `top` may cost a search
  for (let i = 0; i < cells.length; i++) cells[i] = table[level({ curve, top }, weights[i])];
  return image;
}
