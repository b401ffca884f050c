/**
 * The channel of a bundle: what it does to z before z leaves the page, as attncem_edge/channel.py does it.
 *
 * @typedef {Record<string, any>} Options
 * @typedef {(law: import("./noise.js").Law) => Float64Array} Draw
 */

import { coloured } from "./colour.js";
import { BundleError } from "./errors.js";
import { isNumber } from "./manifest.js";
import { draw, freshSecret, keyedSecret, SCHEME } from "./noise.js";
import { allFinite, pairwiseSum, product, roundEven } from "./numbers.js";

const single = Math.fround;

/**
 * What each stage does to z.
 * @type {Record<string, (z: Float32Array, options: Options, draw: Draw, shape: number[]) => Float32Array>}
 */
const STAGES = {
  identity: (z) => z,
  gaussian: (z, { noise_std }, draw) => added(z, noise_std, () => draw("normal")),
  laplace: (z, { noise_std }, draw) => added(z, noise_std / Math.SQRT2, () => draw("laplace")),
  shaped: (z, { noise_std, tilt }, draw, shape) => added(z, noise_std, () => coloured(draw("normal"), shape, tilt)),
  local_dp: localDp,
  dropout,
  top_k: topK,
  quantise,
};

/** Stages that a page can apply. */
export const SUPPORTED = Object.keys(STAGES);

/** @param {Float32Array} z @param {number} strength @param {() => Float64Array} numbers */
function added(z, strength, numbers) {
  if (strength === 0) return z;
  const scale = single(strength);
  const drawn = numbers();
  return z.map((it, i) => it + single(scale * single(drawn[i])));
}

/**
 * z clipped to a length, with noise, to the nearest multiple of `grid`.
 * @param {Float32Array} z
 * @param {Options} options
 * @param {Draw} draw
 */
function localDp(z, { clip, noise_std, grid }, draw) {
  const finite = Float64Array.from(z, (it) => (Number.isFinite(it) ? it : 0));
  const limit = clip * (1 - 2 ** -30);
  const factor = limit / Math.max(Math.sqrt(pairwiseSum(finite.map((it) => it * it))), limit);
  const numbers = draw("normal");
  return Float32Array.from(finite, (it, i) => roundEven((it * factor + noise_std * numbers[i]) / grid) * grid + 0);
}

/** @param {Float32Array} z @param {Options} options @param {Draw} draw */
function dropout(z, { rate, rescale }, draw) {
  if (rate === 0) return z;
  const numbers = draw("uniform");
  const kept = z.map((it, i) => (single(numbers[i]) < single(rate) ? 0 : it));
  return rescale ? kept.map((it) => it / single(1 - rate)) : kept;
}

/**
 * The largest values; of equal ones the first.
 * @param {Float32Array} z
 * @param {Options} options
 */
function topK(z, { keep }) {
  const order = Array.from(z.keys()).sort((a, b) => z[b] - z[a] || a - b);
  const released = new Float32Array(z.length);
  for (const place of order.slice(0, Math.max(1, roundEven(keep * z.length)))) released[place] = z[place];
  return released;
}

/**
 * The nearest of 2^bits levels, computed in float32.
 * @param {Float32Array} z
 * @param {Options} options
 */
function quantise(z, { bits, low: least, high: most }) {
  const [low, high] = [single(least), single(most)];
  const step = single((most - least) / (2 ** bits - 1));
  return z.map((it) => {
    const index = roundEven(single(single(Math.min(Math.max(it, low), high) - low) / step));
    return single(low + single(step * index)) + 0;
  });
}

/** The stages of a bundle in their order; BundleError where one is unknown or incomplete. */
export class Channel {
  /** @param {Options[]} stages @param {string} fingerprint @param {number} [scheme] */
  constructor(stages, fingerprint, scheme = SCHEME) {
    if (scheme !== SCHEME)
      throw new BundleError(`the bundle has noise of scheme ${scheme}, and this program draws scheme ${SCHEME}`);
    const problem = stages.map(problemOf).find(Boolean);
    if (problem)
      throw new BundleError(`the channel of the bundle cannot be applied: ${problem}; export the bundle again`);
    this.stages = stages;
    this.fingerprint = fingerprint;
    this.keyed = stages.some((it) => it.noise === "keyed");
  }

  /**
   * What leaves the page for the z of one image; `key` is that of keyed noise.
   * @param {Float32Array} z
   * @param {number[]} shape
   * @param {Uint8Array} pixels
   * @param {Uint8Array} [key]
   */
  release(z, shape, pixels, key) {
    /** @type {Float32Array} */
    let released = Float32Array.from(z);
    this.stages.forEach((stage, place) => {
      const drawn = /** @type {Draw} */ (law) =>
        draw(this.secret(place, pixels, key), law, product(shape), this.keyed ? place : 0);
      released = STAGES[stage.name](released, stage, drawn, shape);
    });
    if (!allFinite(released))
      throw new BundleError("the channel of the bundle gave numbers that are not finite; nothing was sent");
    return released;
  }

  /**
   * The secret of one stage's noise.
   * @param {number} place
   * @param {Uint8Array} pixels
   * @param {Uint8Array} [key]
   */
  secret(place, pixels, key) {
    if (this.stages[place].noise !== "keyed") return freshSecret();
    if (key === undefined) throw new TypeError("keyed noise needs the key of the device");
    return keyedSecret(key, this.fingerprint, place, pixels);
  }
}

// options

/** @param {number} low @param {number} [high] @param {{above?: boolean}} [open] @returns {(value: any) => boolean} */
const between =
  (low, high = Infinity, { above = false } = {}) =>
  (value) =>
    isNumber(value) && (above ? value > low : value >= low) && value <= high;
/** @param {any} value */
const isNoise = (value) => value === "fresh" || value === "keyed";
/** @param {any} value */
const isPower = (value) => positive(value) && 2 ** Math.round(Math.log2(value)) === value;
const [any, positive, strength] = [between(-Infinity), between(0, Infinity, { above: true }), between(0)];

/**
 * What each option of a stage must be.
 * @type {Record<string, Record<string, (value: any) => boolean>>}
 */
const OPTIONS = {
  identity: {},
  gaussian: { noise: isNoise, noise_std: strength },
  laplace: { noise: isNoise, noise_std: strength },
  shaped: { noise: isNoise, noise_std: strength, tilt: between(-3, 3) },
  local_dp: {
    noise: isNoise,
    noise_std: positive,
    clip: positive,
    grid: isPower,
    epsilon: positive,
    delta: between(0, 1, { above: true }),
  },
  dropout: {
    noise: isNoise,
    rate: (value) => strength(value) && value < 1,
    rescale: (value) => typeof value === "boolean",
  },
  top_k: { keep: between(0, 1, { above: true }) },
  quantise: { bits: (value) => Number.isInteger(value) && value >= 1 && value <= 16, low: any, high: any },
};
/**
 * Options that say the same as another one.
 * @type {Record<string, string[]>}
 */
const EXTRA = { laplace: ["scale"] };

/**
 * Why a stage cannot be applied; empty where it can.
 * @param {Options} stage
 */
function problemOf(stage) {
  const { name, ...rest } = stage;
  if (typeof name !== "string" || !Object.hasOwn(STAGES, name))
    return `its stage ${shown(name)} is unknown: this program knows ${SUPPORTED.join(", ")}`;
  const [keys, needed] = [Object.keys(rest).filter((key) => !EXTRA[name]?.includes(key)), Object.keys(OPTIONS[name])];
  if (keys.length !== needed.length || !needed.every((key) => keys.includes(key)))
    return `${name} has the options ${keys.join(", ") || "none"} and needs ${needed.join(", ") || "none"}`;
  const wrong = needed.find((key) => !OPTIONS[name][key](rest[key]));
  if (wrong) return `${name} cannot have ${wrong}=${shown(rest[wrong])}`;
  return name === "quantise" && rest.low >= rest.high ? "quantise has an empty range" : "";
}

/**
 * A value as Python writes it.
 * @param {any} value
 */
const shown = (value) => (typeof value === "string" ? `'${value}'` : value == null ? "None" : JSON.stringify(value));
