/** Noise of a colour: white noise whose waves have the strength (1 + f)^−tilt, f in half periods, mean square 1. */

import { pairwiseSum } from "./numbers.js";

/** Axes of the z of one image that is a map: channels, height, width. */
const MAP = 3;

/**
 * White noise of a map [C, H, W], coloured; noise of other shapes stays white.
 * @param {Float64Array} white
 * @param {number[]} shape
 * @param {number} tilt
 */
export function coloured(white, shape, tilt) {
  if (shape.length !== MAP) return white;
  const [channels, height, width] = shape;
  const [rows, columns, gains] = [cosines(height), cosines(width), gainsOf(height, width, tilt)];
  const size = height * width;
  const shaded = new Float64Array(white.length);
  for (let c = 0; c < channels; c++) {
    const waves = gains.map((gain, i) => gain * white[c * size + i]);
    shaded.set(fromWaves(waves, rows, columns, height, width), c * size);
  }
  return shaded;
}

/**
 * rowsᵀ · waves · columns.
 * @param {Float64Array} waves
 * @param {Float64Array} rows
 * @param {Float64Array} columns
 * @param {number} height
 * @param {number} width
 */
function fromWaves(waves, rows, columns, height, width) {
  const half = matrix(height, width, (i, x) => dot(width, (j) => waves[i * width + j] * columns[j * width + x]));
  return matrix(height, width, (y, x) => dot(height, (i) => rows[i * height + y] * half[i * width + x]));
}

/**
 * The gain of each pair of waves.
 * @param {number} height
 * @param {number} width
 * @param {number} tilt
 */
function gainsOf(height, width, tilt) {
  const gains = matrix(height, width, (i, j) => (1 + Math.hypot(i, j)) ** -tilt);
  const mean = pairwiseSum(gains.map((it) => it * it)) / gains.length;
  return gains.map((it) => it / Math.sqrt(mean));
}

/**
 * The orthonormal cosine transform of a line, type II.
 * @param {number} size
 */
const cosines = (size) =>
  matrix(size, size, (wave, place) =>
    wave === 0 ? Math.sqrt(1 / size) : Math.sqrt(2 / size) * Math.cos((Math.PI * wave * (2 * place + 1)) / (2 * size)),
  );

/** @param {number} height @param {number} width @param {(row: number, column: number) => number} value */
const matrix = (height, width, value) =>
  Float64Array.from({ length: height * width }, (_, i) => value(Math.floor(i / width), i % width));

/**
 * The sum of `count` numbers.
 * @param {number} count
 * @param {(i: number) => number} value
 */
function dot(count, value) {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += value(i);
  return sum;
}
