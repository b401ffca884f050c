/** Arithmetic that JavaScript does otherwise than Python and numpy. */

const WHOLE = 2 ** 52;

/**
 * The nearest whole number, of two the even one, as Python's round and numpy's rint give it.
 * @param {number} x
 */
export function roundEven(x) {
  if (!(Math.abs(x) < WHOLE)) return x;
  return x < 0 ? -(-x + WHOLE - WHOLE) : x + WHOLE - WHOLE;
}

/**
 * The product of whole numbers.
 * @param {number[]} sizes
 */
export const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

/**
 * The sum in numpy's order, so its last bits are numpy's.
 * @param {Float64Array} row
 * @returns {number}
 */
export function pairwiseSum(row) {
  const n = row.length;
  if (n < 8) return row.reduce((a, b) => a + b, 0);
  if (n > 128) {
    const half = (n >> 1) - ((n >> 1) % 8);
    return pairwiseSum(row.subarray(0, half)) + pairwiseSum(row.subarray(half));
  }
  const r = row.slice(0, 8);
  const end = n - (n % 8);
  for (let i = 8; i < end; i++) r[i % 8] += row[i];
  const sum = r[0] + r[1] + (r[2] + r[3]) + (r[4] + r[5] + (r[6] + r[7]));
  return row.subarray(end).reduce((a, b) => a + b, sum);
}

/**
 * Probabilities of logits, in float64.
 * @param {Float32Array} logits
 * @returns {number[]}
 */
export function softmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(logits, (it) => Math.exp(it - largest));
  const sum = pairwiseSum(powers);
  return Array.from(powers, (it) => it / sum);
}

/**
 * Whether all numbers are finite.
 * @param {Float32Array} row
 */
export const allFinite = (row) => row.every(Number.isFinite);

/**
 * Bytes as hexadecimal digits.
 * @param {Uint8Array} bytes
 */
export const toHex = (bytes) => Array.from(bytes, (it) => it.toString(16).padStart(2, "0")).join("");
