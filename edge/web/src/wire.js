/**
 * Asks a server by the Open Inference Protocol v2 over HTTP: z as bytes there, logits back.
 *
 * A request is made once. Every retry sends the same bytes, so it shows the server nothing new.
 *
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {{body: Uint8Array, headers: Record<string, string>, mark: string}} Request
 * @typedef {{token?: string, timeout?: number, retries?: number, plainHttp?: boolean}} Connection
 */

import { ConfigError, ServerError, words } from "./errors.js";
import { FEATURE, LOGITS } from "./manifest.js";
import { allFinite, product, toHex } from "./numbers.js";

const HEADER = "Inference-Header-Content-Length";
/** Statuses after which the same request is sent again; after 429 it is only where the server names a time to wait. */
const AGAIN = [502, 503, 504];
const TOO_MANY = 429;
const LARGEST_ANSWER = 2 ** 24;
const LONGEST_PAUSE = 30;
const FIRST_PAUSE = 0.2;

/**
 * The request for one release of a model: the bytes that the Python client sends.
 * @param {Float32Array} released
 * @param {Manifest} manifest
 * @returns {Request}
 */
export function makeRequest(released, { fingerprint, feature }) {
  if (released.length !== product(feature.shape))
    throw new ConfigError(`released has ${released.length} numbers; the bundle's z has ${product(feature.shape)}`);
  const mark = toHex(crypto.getRandomValues(new Uint8Array(8)));
  const size = `{"binary_data_size": ${4 * released.length}}`;
  const shape = [1, ...feature.shape].join(", ");
  const part = `{"name": "${FEATURE}", "shape": [${shape}], "datatype": "FP32", "parameters": ${size}}`;
  const output = `{"name": "${LOGITS}", "parameters": {"binary_data": true}}`;
  const head = new TextEncoder().encode(
    `{"id": "${mark}", "parameters": {"fingerprint": "${fingerprint}"}, "inputs": [${part}], "outputs": [${output}]}`,
  );
  const body = new Uint8Array(head.length + 4 * released.length);
  body.set(head);
  body.set(new Uint8Array(Float32Array.from(released).buffer), head.length);
  return { body, headers: { "Content-Type": "application/octet-stream", [HEADER]: String(head.length) }, mark };
}

/**
 * The logits that the server answers; ServerError where it does not.
 * @param {string} url
 * @param {Manifest} manifest
 * @param {Request} request
 * @param {Connection} [connection]
 * @returns {Promise<Float32Array>}
 */
export async function ask(url, manifest, request, { token, timeout = 10, retries = 3, plainHttp = false } = {}) {
  const base = addressOf(url, plainHttp);
  check(token, timeout, retries);
  const address = `${base}/v2/models/${encodeURIComponent(manifest.name)}/infer`;
  let [pause, problem] = [FIRST_PAUSE, ""];
  for (let attempt = 0; attempt <= retries; attempt++) {
    if (attempt) await wait(pause * (1 + Math.random() / 2)); // clients do not all come back at once
    const answer = await exchange(address, request, token, timeout).catch((error) => complaintOf(error, base));
    if (typeof answer === "string") {
      [pause, problem] = [Math.min(2 * pause, LONGEST_PAUSE), answer];
      continue;
    }
    if (answer.status === 200) return logitsOf(url, answer, request, manifest.labels.length);
    problem = `status ${answer.status}: ${reasonOf(answer.body)}`;
    const asked = answer.headers.get("Retry-After");
    if (!AGAIN.includes(answer.status) && !(answer.status === TOO_MANY && asked !== null))
      throw new ServerError(`${url} refused: ${problem}`);
    pause = Math.max(Math.min(2 * pause, LONGEST_PAUSE), secondsOf(asked));
  }
  throw new ServerError(`${url} did not answer after ${retries + 1} attempts: ${problem}`);
}

/**
 * Send the request once.
 * @param {string} address
 * @param {Request} request
 * @param {string | undefined} token
 * @param {number} timeout
 */
async function exchange(address, request, token, timeout) {
  const headers = { ...request.headers, ...(token === undefined ? {} : { Authorization: `Bearer ${token}` }) };
  const response = await fetch(address, {
    method: "POST",
    headers,
    body: /** @type {BodyInit} */ (request.body),
    signal: AbortSignal.timeout(1000 * timeout),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    referrerPolicy: "no-referrer",
  });
  return { status: response.status, headers: response.headers, body: await whole(response) };
}

/**
 * All of an answer; an error where it is too long.
 * @param {Response} response
 */
async function whole(response) {
  const parts = [];
  let size = 0;
  for (const reader = response.body?.getReader(); reader !== undefined;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > LARGEST_ANSWER) {
      await reader.cancel();
      throw new Error(`the answer has more than ${LARGEST_ANSWER} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/**
 * The address without its last slash; ConfigError where it is none, or would send z unprotected through a network.
 * @param {string} url
 * @param {boolean} plainHttp
 */
function addressOf(url, plainHttp) {
  const parts = /^[!-~]+$/.test(url) && URL.canParse(url) ? new URL(url) : undefined;
  if (parts === undefined || !["http:", "https:"].includes(parts.protocol) || parts.search || parts.hash)
    throw new ConfigError(`url=${url}: must look like https://HOST:PORT, or http://127.0.0.1:PORT on this machine`);
  if (parts.username || parts.password)
    throw new ConfigError("url: must hold no password; a token is an option of its own");
  if (parts.protocol === "http:" && !plainHttp && !isHere(parts.hostname))
    throw new ConfigError(
      `url=${url}: everyone on the way could read what is sent; use https, or allow it with plainHttp`,
    );
  return parts.origin + parts.pathname.replace(/\/+$/, "");
}

/**
 * Whether a host is this machine.
 * @param {string} host
 */
const isHere = (host) => host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);

/** @param {string | undefined} token @param {number} timeout @param {number} retries */
function check(token, timeout, retries) {
  if (!(Number.isFinite(timeout) && timeout > 0) || !(Number.isInteger(retries) && retries >= 0))
    throw new ConfigError(`timeout=${timeout}, retries=${retries}: must be above 0, and at least 0`);
  if (token !== undefined && !/^[!-~]([ -~]*[!-~])?$/.test(token))
    throw new ConfigError("the token must be one line of printable ASCII characters");
}

/**
 * Why there was no answer.
 * @param {unknown} error
 * @param {string} base
 */
function complaintOf(error, base) {
  if (error instanceof Error && error.name === "TimeoutError") return "no answer in time";
  const here = globalThis.location?.origin;
  const foreign = here !== undefined && new URL(base).origin !== here;
  return words(error) + (foreign ? `; if it runs, start it with attncem serve --origin ${here}` : "");
}

/** @param {number} seconds */
const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

/**
 * Seconds that the server asks to wait, within limits.
 * @param {string | null} asked
 */
const secondsOf = (asked) => (/^\d{1,9}$/.test(asked ?? "") ? Math.min(Number(asked), LONGEST_PAUSE) : 0);

/**
 * The logits in an answer, as bytes or as JSON; ServerError where they cannot be those of the request.
 * @param {string} url
 * @param {{headers: Headers, body: Uint8Array}} answer
 * @param {Request} request
 * @param {number} classes
 */
function logitsOf(url, { headers, body }, request, classes) {
  try {
    const size = Number(headers.get(HEADER) ?? body.length);
    const head = JSON.parse(textOf(body.subarray(0, size)));
    if ((head.id ?? request.mark) !== request.mark) throw new Error("it answers another request");
    const [part, ...more] = head.outputs.filter((/** @type {any} */ it) => it.name === LOGITS);
    if (part === undefined || more.length) throw new Error("it has no logits");
    if (part.datatype !== "FP32" || product(part.shape) !== classes)
      throw new Error(`logits are ${part.datatype} [${part.shape}], and the bundle has ${classes} labels`);
    const logits = part.data ? numbersOf(part.data) : bytesOf(body.subarray(size), head.outputs);
    if (logits.length !== classes || !allFinite(logits))
      throw new Error("logits have the wrong number, or are not finite");
    return logits;
  } catch (error) {
    throw new ServerError(`${url} gave an answer that cannot be read: ${words(error)}`, { cause: error });
  }
}

/** @param {any[]} data */
function numbersOf(data) {
  const flat = data.flat(Infinity);
  if (!flat.every((it) => typeof it === "number")) throw new Error("logits are not numbers");
  return Float32Array.from(flat);
}

/**
 * The numbers of the logits behind the JSON, where outputs stand one after the other.
 * @param {Uint8Array} data
 * @param {any[]} outputs
 */
function bytesOf(data, outputs) {
  const sizes = outputs.map((it) => Number(it.parameters?.binary_data_size ?? 0));
  const place = outputs.findIndex((it) => it.name === LOGITS);
  const start = sizes.slice(0, place).reduce((a, b) => a + b, 0);
  const bytes = data.slice(start, start + sizes[place]);
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: Math.floor(bytes.length / 4) }, (_, i) => view.getFloat32(4 * i, true));
}

/**
 * The server's reason, in one line.
 * @param {Uint8Array} body
 */
function reasonOf(body) {
  try {
    return words(JSON.parse(textOf(body)).error) || "no reason";
  } catch {
    return words(textOf(body)) || "no reason";
  }
}

/** @param {Uint8Array} bytes */
const textOf = (bytes) => new TextDecoder().decode(bytes);
