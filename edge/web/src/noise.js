/**
 * Noise that leaves a device, scheme 1: a 256-bit secret → a SHAKE-256 stream → numbers in float64.
 *
 * The counterpart of attncem_edge/noise.py. The secret comes from the browser's generator for every release (`fresh`),
 * or by HMAC-SHA-256 from a key and the input (`keyed`). docs/channels.md gives the reasons.
 *
 * @typedef {"normal" | "laplace" | "uniform"} Law
 */

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { shake256 } from "@noble/hashes/sha3.js";

/** Version of the scheme: that of attncem_edge/noise.py. */
export const SCHEME = 1;
/** Length of a secret and of a key. */
export const SECRET_BYTES = 32;
const BYTES_PER_NUMBER = 16;
const BELOW_HALF = 0.5 - 2 ** -54;
const BELOW_ONE = 1 - 2 ** -53;

/** A secret from the browser's generator, for one release. */
export const freshSecret = () => crypto.getRandomValues(new Uint8Array(SECRET_BYTES));

/**
 * The secret of one input: HMAC-SHA-256(key, (scheme, fingerprint, stage, pixels)).
 * @param {Uint8Array} key
 * @param {string} fingerprint
 * @param {number} stage
 * @param {Uint8Array} pixels
 */
export function keyedSecret(key, fingerprint, stage, pixels) {
  requireLength(key, "a key");
  const message = joined(text("attncem keyed noise"), number(SCHEME), text(fingerprint), number(stage), pixels);
  return hmac(sha256, key, message);
}

/**
 * The first `count` numbers of a secret: standard normal, Laplace of scale 1, or uniform in (0, 1).
 * @param {Uint8Array} secret
 * @param {Law} law
 * @param {number} count
 * @param {number} [stage]
 */
export function draw(secret, law, count, stage = 0) {
  requireLength(secret, "a secret");
  const message = joined(text("attncem noise"), number(SCHEME), text(law), number(stage), secret);
  const stream = shake256(message, { dkLen: BYTES_PER_NUMBER * count });
  const words = new DataView(stream.buffer, stream.byteOffset, stream.byteLength);
  const numbers = new Float64Array(count);
  for (let i = 0; i < count; i++) numbers[i] = LAWS[law](...half(words, BYTES_PER_NUMBER * i));
  return numbers;
}

/**
 * Two 64-bit words → a fair bit, and p = (m + ½) 2^-128 for the other 127 bits m, rounded to 53 significant bits.
 * @param {DataView} words
 * @param {number} place
 * @returns {[boolean, number]}
 */
function half(words, place) {
  const top = words.getUint32(place + 4, true);
  const high = (top & 0x7fffffff) * 2 ** 32 + words.getUint32(place, true);
  const low = words.getUint32(place + 12, true) * 2 ** 32 + words.getUint32(place + 8, true);
  return [top >= 2 ** 31, Math.min(high * 2 ** -64 + (low + 0.5) * 2 ** -128, BELOW_HALF)];
}

/**
 * The number of each distribution from a fair bit and p in (0, ½).
 * @type {Record<Law, (upper: boolean, p: number) => number>}
 */
const LAWS = {
  normal: (upper, p) => signed(upper, normalQuantile(p)),
  laplace: (upper, p) => signed(upper, -Math.log(2 * p)),
  uniform: (upper, p) => (upper ? Math.min(1 - p, BELOW_ONE) : p),
};

/** @param {boolean} upper @param {number} size */
const signed = (upper, size) => (upper ? size : -size);

/**
 * −Φ⁻¹(p) for p in (0, ½): Wichura's PPND16 (Algorithm AS 241, 1988).
 * @param {number} p
 */
function normalQuantile(p) {
  if (p > 0.075) {
    const q = 0.5 - p;
    return q * ratio(MIDDLE, 0.180625 - q * q);
  }
  const r = Math.sqrt(-Math.log(p));
  return r <= 5 ? ratio(NEAR, r - 1.6) : ratio(FAR, r - 5);
}

/**
 * The ratio of two polynomials.
 * @param {number[][]} coefficients from the constant on
 * @param {number} r
 */
const ratio = ([above, below], r) => polynomial(above, r) / polynomial(below, r);

/** @param {number[]} coefficients @param {number} r */
const polynomial = (coefficients, r) => coefficients.reduceRight((value, it) => value * r + it);

/** @param {Uint8Array} bytes @param {string} what */
function requireLength(bytes, what) {
  if (bytes.length !== SECRET_BYTES) throw new RangeError(`${what} has ${SECRET_BYTES} bytes, got ${bytes.length}`);
}

/**
 * The parts, each after its length: different lists of parts never give the same bytes.
 * @param {...Uint8Array} parts
 */
function joined(...parts) {
  const rows = parts.flatMap((part) => [number(part.length), part]);
  const bytes = new Uint8Array(rows.reduce((size, row) => size + row.length, 0));
  rows.reduce((place, row) => (bytes.set(row, place), place + row.length), 0);
  return bytes;
}

/** @param {string} value */
const text = (value) => new TextEncoder().encode(value);

/**
 * A whole number as 8 bytes, the largest first.
 * @param {number} value
 */
function number(value) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

const MIDDLE = [
  [
    3.387132872796366608, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
    4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
  ],
  [
    1, 4.2313330701600911252e1, 6.871870074920579083e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
    3.930789580009271061e4, 2.8729085735721942674e4, 5.226495278852854561e3,
  ],
];
const NEAR = [
  [
    1.42343711074968357734, 4.6303378461565452959, 5.7694972214606914055, 3.64784832476320460504,
    1.27045825245236838258, 2.4178072517745061177e-1, 2.27238449892691845833e-2, 7.7454501427834140764e-4,
  ],
  [
    1, 2.05319162663775882187, 1.6763848301838038494, 6.8976733498510000455e-1, 1.4810397642748007459e-1,
    1.51986665636164571966e-2, 5.475938084995344946e-4, 1.05075007164441684324e-9,
  ],
];
const FAR = [
  [
    6.6579046435011037772, 5.4637849111641143699, 1.7848265399172913358, 2.9656057182850489123e-1,
    2.6532189526576123093e-2, 1.2426609473880784386e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
  ],
  [
    1, 5.9983220655588793769e-1, 1.3692988092273580531e-1, 1.48753612908506148525e-2, 7.868691311456132591e-4,
    1.8463183175100546818e-5, 1.4215117583164458887e-7, 2.04426310338993978564e-15,
  ],
];
