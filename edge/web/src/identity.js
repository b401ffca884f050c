/**
 * The identity of a bundle: SHA-256 of its facts as Python's json.dumps writes them, with sorted keys and no spaces.
 *
 * It is computed from the text, because JavaScript does not tell 1.0 from 1; the digits of numbers stay as they are.
 * Every key must be there, as attncem writes them: defaults are not filled in.
 */

import { sha256 } from "@noble/hashes/sha2.js";
import { toHex } from "./numbers.js";

/** A string; one of the six signs of JSON; a number or a word. */
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/gs;

/**
 * The identity of a manifest's text, which JSON.parse has accepted.
 * @param {string} text
 */
export function identityOf(text) {
  const tokens = (text.match(TOKENS) ?? []).values();
  return toHex(sha256(new TextEncoder().encode(written(tokens, next(tokens), "identity"))));
}

/** @param {Iterator<string>} tokens @returns {string} */
const next = (tokens) => tokens.next().value;

/**
 * The value that begins with a token; a table without the key `left`.
 * @param {Iterator<string>} tokens
 * @param {string} first
 * @param {string} [left]
 * @returns {string}
 */
function written(tokens, first, left) {
  if (first === "{") return table(tokens, left);
  if (first === "[") return list(tokens);
  return first.startsWith('"') ? quoted(JSON.parse(first)) : first;
}

/** @param {Iterator<string>} tokens */
function list(tokens) {
  const items = [];
  for (let it = next(tokens); it !== "]"; it = next(tokens)) if (it !== ",") items.push(written(tokens, it));
  return `[${items.join(",")}]`;
}

/** @param {Iterator<string>} tokens @param {string} [left] */
function table(tokens, left) {
  const fields = /** @type {Map<string, string>} */ (new Map());
  for (let it = next(tokens); it !== "}"; it = next(tokens)) {
    if (it === ",") continue;
    next(tokens); // the colon
    fields.set(JSON.parse(it), written(tokens, next(tokens)));
  }
  const keys = [...fields.keys()].filter((key) => key !== left).sort();
  return `{${keys.map((key) => `${quoted(key)}:${fields.get(key)}`).join(",")}}`;
}

/**
 * A string as Python writes it: ASCII alone.
 * @param {string} value
 */
const quoted = (value) =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, (it) => `\\u${it.charCodeAt(0).toString(16).padStart(4, "0")}`);
