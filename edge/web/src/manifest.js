/**
 * The manifest of a bundle, checked as attncem_edge/manifest.py checks it.
 *
 * @typedef {object} Manifest
 * @property {string} name
 * @property {string} fingerprint
 * @property {{channels: number, height: number, width: number, squash?: boolean}} image
 * @property {{shape: number[], low?: number | null, high?: number | null}} feature
 * @property {string[]} labels
 * @property {Record<string, any>[]} channel
 * @property {Record<string, string>} files
 * @property {number} [noise_scheme]
 * @property {{threshold: number, share: number} | null} [decision]
 * @property {number} bundle
 */

import { sha256 } from "@noble/hashes/sha2.js";
import { BundleError, words } from "./errors.js";
import { identityOf } from "./identity.js";
import { product, toHex } from "./numbers.js";

/** Version of the format of bundles. */
export const VERSION = 1;
/** Characters of a manifest at most. */
const LARGEST = 2 ** 20;
/** Names of the tensors of both files and of requests. */
export const [IMAGE, FEATURE, LOGITS, ANSWERS] = ["image", "z", "logits", "answers"];
const LARGEST_NUMBER = 3e38;
const MOST_VALUES = 2 ** 26;

/**
 * The manifest in a JSON text or a parsed object; BundleError where it is damaged or of another version.
 * Only a text can be compared with its identity: a parsed object no longer holds the digits of its numbers.
 * @param {unknown} source
 * @returns {Manifest}
 */
export function readManifest(source) {
  const facts = typeof source === "string" ? parsed(source) : structuredClone(source);
  if (!isTable(facts) || !Number.isInteger(facts.bundle))
    throw new BundleError(
      "manifest.json belongs to no bundle: it has no version; attncem export makes a bundle of a run",
    );
  if (facts.bundle !== VERSION)
    throw new BundleError(`manifest.json has version ${facts.bundle} of the format, and this program reads ${VERSION}`);
  const problem = problemOf(facts);
  if (problem) throw new BundleError(`manifest.json is damaged: ${problem}; export the bundle again`);
  if (typeof source === "string" && identityOf(source) !== facts.identity)
    throw new BundleError(
      "manifest.json was changed after the export: its content does not fit its identity; export it again",
    );
  const { noise_scheme = 1, decision = null, ...rest } = facts;
  return /** @type {Manifest} */ ({ ...rest, noise_scheme, decision });
}

/** @param {string} text */
function parsed(text) {
  if (text.length > LARGEST)
    throw new BundleError(`manifest.json has more than ${LARGEST} characters: it is no manifest`);
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BundleError(`manifest.json is damaged: ${words(error)}; export the bundle again`, { cause: error });
  }
}

/**
 * BundleError unless these bytes are the file that was exported.
 * @param {Manifest} manifest
 * @param {string} name
 * @param {Uint8Array} bytes
 */
export function checkFile(manifest, name, bytes) {
  const expected = Object.hasOwn(manifest.files, name) ? manifest.files[name] : undefined;
  if (expected === undefined) throw new BundleError(`${name} is missing in the manifest: export the bundle again`);
  if (toHex(sha256(bytes)) !== expected)
    throw new BundleError(`${name} was changed after the export: its SHA-256 is not the recorded one`);
}

/**
 * The first key that is missing, unknown or has a value that cannot be; empty where all can.
 * @param {Record<string, any>} facts
 */
function problemOf(facts) {
  const unknown = Object.keys(facts).filter((key) => key !== "identity" && !Object.hasOwn(RIGHT, key));
  if (unknown.length) return `unknown keys ${unknown.sort().join(", ")}`;
  const missing = NEEDED.find((key) => !Object.hasOwn(facts, key));
  if (missing) return `${missing} is missing`;
  const wrong = Object.keys(facts).find((key) => key !== "identity" && !RIGHT[key](facts[key], facts));
  return wrong ? `the value of ${wrong} cannot be` : "";
}

/**
 * Whether a value is a finite number that float32 can hold.
 * @param {any} value
 */
export const isNumber = (value) => typeof value === "number" && Math.abs(value) <= LARGEST_NUMBER;
/** @param {any} value @returns {value is Record<string, any>} */
const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @param {any} value */
const isHash = (value) => typeof value === "string" && /^[0-9a-f]{64}$/.test(value);
/** @param {any} value */
const isShare = (value) => isNumber(value) && value >= 0 && value <= 1;
/** @param {any} sizes */
const isSize = (sizes) =>
  Array.isArray(sizes) &&
  sizes.length > 0 &&
  sizes.every((it) => Number.isInteger(it) && it > 0) &&
  product(sizes) <= MOST_VALUES;
/** @param {any} low @param {any} high */
const isRange = (low, high) => {
  const ends = [low, high].filter((it) => it != null);
  return ends.every(isNumber) && (ends.length < 2 || low <= high);
};
/** @param {any} value @param {(it: any) => boolean} right */
const isTableOf = (value, right) => isTable(value) && Object.values(value).every(right);
/** @param {any} value @param {(it: any) => boolean} right */
const isListOf = (value, right) => Array.isArray(value) && value.every(right);
/** @param {any} it */
const isText = (it) => typeof it === "string";

/**
 * What each value must be.
 * @type {Record<string, (value: any, facts: Record<string, any>) => boolean>}
 */
const RIGHT = {
  bundle: (it) => it === VERSION,
  name: (it) => isText(it) && /^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}$/.test(it),
  fingerprint: isHash,
  image: (it) =>
    isTable(it) &&
    isSize([it.channels, it.height, it.width]) &&
    [1, 3].includes(it.channels) &&
    hasKeys(it, "channels height squash width"),
  feature: (it) => isTable(it) && isSize(it.shape) && isRange(it.low, it.high) && hasKeys(it, "high low shape"),
  labels: (it) => isListOf(it, isText) && it.length > 0 && new Set(it).size === it.length,
  channel: (it) => isListOf(it, (stage) => isTable(stage) && isText(stage.name)),
  files: (it) => isTableOf(it, isHash),
  noise_scheme: (it) => Number.isInteger(it),
  front_end: isTable,
  decision: (it) =>
    it === null || (isTable(it) && isShare(it.threshold) && isShare(it.share) && hasKeys(it, "share threshold")),
  nats: (it) =>
    isTableOf(it, (value) => isNumber(value) && value >= 0) && Object.keys(it).every((key) => /^\d+$/.test(key)),
  audits: (it) => isListOf(it, isTable),
  audited: (it, facts) => it === (facts.audits ?? []).length > 0,
  checked: isTable,
  versions: (it) => isTableOf(it, isText),
};
/** Keys without a default. */
const NEEDED = ["name", "fingerprint", "image", "feature", "labels", "channel", "files"];

/**
 * Whether a table has these keys and no others.
 * @param {Record<string, any>} table
 * @param {string} keys
 */
const hasKeys = (table, keys) => Object.keys(table).sort().join(" ") === keys;
