/**
 * A bundle in a page: a picture's label, answered in the page or by a server that gets no more than the audited z.
 *
 * @typedef {object} Prediction
 * @property {string} label
 * @property {Record<string, number>} probabilities by label
 * @property {boolean} onDevice whether the page answered itself; then nothing was sent
 * @property {number} bytesSent size of the request's body
 * @property {number | null} confidence that of the client's head, null without a head
 * @property {string[]} steps how the picture was converted
 * @property {Float32Array} [released] what was sent
 *
 * @typedef {object} Look
 * @property {Float32Array} z the clean feature: never send it
 * @property {Float32Array | null} answers logits of the client's head
 * @property {number | null} confidence
 * @property {boolean} onDevice whether the client answers itself
 */

import { Channel } from "./channel.js";
import { BundleError, ConfigError, DataError } from "./errors.js";
import { openGraph } from "./graph.js";
import { ANSWERS, checkFile, FEATURE, IMAGE, readManifest } from "./manifest.js";
import { SECRET_BYTES } from "./noise.js";
import { allFinite, product, softmax } from "./numbers.js";
import { readPicture } from "./pictures.js";
import { ask, makeRequest } from "./wire.js";

const CLIENT = "client.onnx";

/**
 * The client of a bundle; BundleError where it is damaged or of another version.
 * `manifest`: the text of manifest.json, or what JSON.parse made of it; only the text is compared with its identity.
 * `graph`: the bytes of client.onnx. `key`: 32 bytes for keyed noise, the same for all visits of this person.
 * `identity`: the bundle's identity as you know it from its maker; another bundle is refused.
 * @param {{manifest: unknown, graph: Uint8Array, key?: Uint8Array, identity?: string}} options
 */
export async function openClient({ manifest: source, graph, key, identity }) {
  if (!(graph instanceof Uint8Array)) throw new ConfigError("graph: must be the bytes of client.onnx, a Uint8Array");
  const manifest = readManifest(source);
  const { identity: stated } = /** @type {any} */ (manifest);
  if (identity !== undefined && identity !== stated)
    throw new BundleError(`this is another bundle: its identity is ${stated}, not ${identity}`);
  checkFile(manifest, CLIENT, graph);
  const channel = new Channel(manifest.channel, manifest.fingerprint, manifest.noise_scheme);
  requireKey(channel, key);
  const outputs = manifest.decision == null ? [FEATURE] : [FEATURE, ANSWERS];
  const run = await openGraph(graph, { input: IMAGE, outputs, file: CLIENT });
  return new Client(manifest, channel, run, key);
}

/** @param {Channel} channel @param {Uint8Array | undefined} key */
function requireKey(channel, key) {
  if (key === undefined && channel.keyed)
    throw new ConfigError("the bundle's noise is keyed: give the key of this device, 32 random bytes that it keeps");
  if (key !== undefined && (key.length !== SECRET_BYTES || key.every((it) => it === key[0])))
    throw new ConfigError(`key: must be ${SECRET_BYTES} random bytes`);
}

/** A bundle in a page; openClient makes it. */
export class Client {
  #channel;
  #run;
  #key;

  /**
   * @param {import("./manifest.js").Manifest} manifest
   * @param {Channel} channel
   * @param {import("./graph.js").Run} run
   * @param {Uint8Array} [key]
   */
  constructor(manifest, channel, run, key) {
    this.manifest = manifest;
    this.#channel = channel;
    this.#run = run;
    this.#key = key?.slice();
  }

  /**
   * Pixels uint8 [C, H, W] of a picture, and how it was converted.
   * @param {import("./decoding.js").Source} source
   */
  async pixels(source) {
    return readPicture(source, this.manifest.image);
  }

  /**
   * What the client computes from pixels. Never send this z.
   * @param {Uint8Array} pixels
   * @returns {Promise<Look>}
   */
  async look(pixels) {
    const { channels, height, width } = this.manifest.image;
    this.#requirePixels(pixels);
    const [z, answers = null] = await this.#run(
      Float32Array.from(pixels, (it) => it / 255),
      [1, channels, height, width],
    );
    this.#check(z, answers);
    const confidence = answers && Math.max(...softmax(answers));
    const threshold = this.manifest.decision?.threshold ?? Infinity;
    return { z, answers, confidence, onDevice: confidence !== null && confidence > threshold };
  }

  /** @param {import("./graph.js").Numbers} z @param {Float32Array | null} answers */
  #check(z, answers) {
    const { feature, labels } = this.manifest;
    if (String(z.dims) !== String([1, ...feature.shape]) || !allFinite(z) || (answers !== null && !allFinite(answers)))
      throw new BundleError("the client of the bundle gave a z of another shape, or numbers that are not finite");
    if (answers !== null && answers.length !== labels.length)
      throw new BundleError(
        `the head of the bundle has ${answers.length} answers, and the bundle ${labels.length} labels`,
      );
  }

  /** @param {unknown} pixels */
  #requirePixels(pixels) {
    const { channels, height, width } = this.manifest.image;
    if (!(pixels instanceof Uint8Array) || pixels.length !== channels * height * width)
      throw new DataError(`pixels must be a Uint8Array of ${channels}x${height}x${width}`);
  }

  /**
   * What may leave: z after the channel, with noise of its own for every call (or keyed).
   * @param {Float32Array} z
   * @param {Uint8Array} pixels
   */
  async release(z, pixels) {
    const { shape } = this.manifest.feature;
    this.#requirePixels(pixels);
    if (z.length !== product(shape)) throw new DataError(`z must have ${product(shape)} numbers`);
    return this.#channel.release(z, shape, pixels, this.#key);
  }

  /**
   * The label of a picture. Without `url`, only pictures that the client answers itself have an answer.
   * @param {import("./decoding.js").Source} source
   * @param {{url?: string} & import("./wire.js").Connection} [options]
   * @returns {Promise<Prediction>}
   */
  async predict(source, { url, ...connection } = {}) {
    const { pixels, steps } = await this.pixels(source);
    const { z, answers, confidence, onDevice } = await this.look(pixels);
    if (answers !== null && onDevice) return { ...this.#answer(answers), onDevice, bytesSent: 0, confidence, steps };
    if (url === undefined) throw new ConfigError("this picture must be sent, and there is no url");
    const released = await this.release(z, pixels);
    const request = makeRequest(released, this.manifest);
    const logits = await ask(url, this.manifest, request, connection);
    return { ...this.#answer(logits), onDevice, bytesSent: request.body.length, confidence, steps, released };
  }

  /** @param {Float32Array} logits */
  #answer(logits) {
    const shares = softmax(logits);
    const label = this.manifest.labels[shares.indexOf(Math.max(...shares))];
    return { label, probabilities: Object.fromEntries(this.manifest.labels.map((it, i) => [it, shares[i]])) };
  }
}
