/**
 * Pillow's resize with the Lanczos filter on 8 bits: two passes, antialiased, in fixed point; the same bytes.
 *
 * The arithmetic is that of libImaging/Resample.c. Pixels are rows of interleaved channels.
 *
 * @typedef {{pixels: Uint8Array | Uint8ClampedArray, width: number, height: number, channels: number}} Picture
 * @typedef {{first: number, weights: Int32Array}} Window
 */

const BITS = 22;
const LOBES = 3;

/**
 * A picture scaled to another size. The order of the two passes is that of Pillow 13, and changes single levels: the
 * height comes first where it loses more than twice as many lines as the width.
 * @param {Picture} picture
 * @param {number} width
 * @param {number} height
 * @returns {Picture}
 */
export function resize(picture, width, height) {
  const lost = picture.height - height;
  const passes = [scaledWidth, scaledHeight];
  if (lost > 0 && lost > 2 * (picture.width - width)) passes.reverse();
  return passes.reduce((made, pass) => pass(made, width, height), picture);
}

/** @param {Picture} picture @param {number} width @returns {Picture} */
function scaledWidth(picture, width) {
  const { pixels, width: before, height, channels } = picture;
  if (before === width) return picture;
  const scaled = new Uint8Array(height * width * channels);
  windows(before, width).forEach((window, x) => {
    for (let y = 0; y < height; y++)
      for (let c = 0; c < channels; c++)
        scaled[(y * width + x) * channels + c] = weighted(pixels, y * before * channels + c, channels, window);
  });
  return { pixels: scaled, width, height, channels };
}

/** @param {Picture} picture @param {number} _ @param {number} height @returns {Picture} */
function scaledHeight(picture, _, height) {
  const { pixels, width, height: before, channels } = picture;
  if (before === height) return picture;
  const line = width * channels;
  const scaled = new Uint8Array(height * line);
  windows(before, height).forEach((window, y) => {
    for (let i = 0; i < line; i++) scaled[y * line + i] = weighted(pixels, i, line, window);
  });
  return { pixels: scaled, width, height, channels };
}

/**
 * The weighted sum of values `stride` apart, as one byte.
 * @param {Uint8Array | Uint8ClampedArray} values
 * @param {number} start
 * @param {number} stride
 * @param {Window} window
 */
function weighted(values, start, stride, { first, weights }) {
  let sum = 1 << (BITS - 1);
  for (let i = 0, place = start + first * stride; i < weights.length; i++, place += stride)
    sum += values[place] * weights[i];
  return Math.min(Math.max(sum >> BITS, 0), 255);
}

/**
 * For each place of the new line the old places that it is computed from, with weights.
 * @param {number} before
 * @param {number} after
 * @returns {Window[]}
 */
function windows(before, after) {
  const scale = before / after;
  const wide = Math.max(scale, 1);
  const support = LOBES * wide;
  return Array.from({ length: after }, (_, place) => {
    const centre = (place + 0.5) * scale;
    const first = Math.max(Math.trunc(centre - support + 0.5), 0);
    const end = Math.min(Math.trunc(centre + support + 0.5), before);
    const row = Array.from({ length: end - first }, (_, i) => lanczos((i + first - centre + 0.5) * (1 / wide)));
    return { first, weights: fixed(row) };
  });
}

/**
 * Weights of sum 1 in fixed point.
 * @param {number[]} row
 */
function fixed(row) {
  const sum = row.reduce((a, b) => a + b, 0);
  return Int32Array.from(row, (it) => {
    const share = sum === 0 ? it : it / sum;
    return Math.trunc(share * 2 ** BITS + (share < 0 ? -0.5 : 0.5));
  });
}

/** @param {number} x */
const lanczos = (x) => (x >= -LOBES && x < LOBES ? sinc(x) * sinc(x / LOBES) : 0);

/** @param {number} x */
const sinc = (x) => (x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI));
