/**
 * ONNX graphs in onnxruntime-web, on one thread.
 *
 * @typedef {Float32Array & {dims: number[]}} Numbers what a graph gives, with its shape
 * @typedef {(numbers: Float32Array, dims: readonly number[]) => Promise<Numbers[]>} Run
 */

import * as ort from "onnxruntime-web/wasm";
import { BundleError, ConfigError, words } from "./errors.js";

/** Characters of the runtime's complaint that are shown. */
const SHOWN = 400;
let configured = false;

/**
 * The runtime's WebAssembly file: its bytes or its address. Call it once, before the first graph is opened.
 * @param {{wasm: Uint8Array | ArrayBuffer | URL | string}} options
 */
export async function configure({ wasm }) {
  if (wasm instanceof Uint8Array || wasm instanceof ArrayBuffer) ort.env.wasm.wasmBinary = wasm;
  else ort.env.wasm.wasmPaths = { wasm: String(wasm) };
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.proxy = false;
  ort.env.logLevel = "fatal";
  configured = true;
}

/**
 * A graph that takes one tensor and gives others; BundleError where it cannot be run.
 * @param {Uint8Array} bytes
 * @param {{input: string, outputs: readonly string[], file?: string}} names
 * @returns {Promise<Run>}
 */
export async function openGraph(bytes, { input, outputs, file = "the graph" }) {
  if (!configured) throw new ConfigError("call configure({wasm}) first, with the runtime's WebAssembly file");
  const session = await opened(bytes, file);
  if (String(session.inputNames) !== input || String(session.outputNames) !== String(outputs))
    throw new BundleError(`${file} must take ${input} and give ${outputs.join(" and ")}: export the bundle again`);
  let last = Promise.resolve(/** @type {unknown} */ (undefined));
  /** @type {Run} */
  const run = (numbers, dims) => {
    const next = last.then(() => computed(session, input, outputs, file, numbers, dims));
    last = next.catch(() => undefined); // the runtime takes one call at a time
    return next;
  };
  return run;
}

/** @param {Uint8Array} bytes @param {string} file */
async function opened(bytes, file) {
  try {
    return await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"], logSeverityLevel: 4 });
  } catch (error) {
    throw new BundleError(`${file} cannot be run by onnxruntime: ${words(error, SHOWN)}`, { cause: error });
  }
}

/**
 * @param {ort.InferenceSession} session
 * @param {string} input
 * @param {readonly string[]} outputs
 * @param {string} file
 * @param {Float32Array} numbers
 * @param {readonly number[]} dims
 * @returns {Promise<Numbers[]>}
 */
async function computed(session, input, outputs, file, numbers, dims) {
  try {
    const made = await session.run({ [input]: new ort.Tensor("float32", numbers, dims) });
    return outputs.map((name) => {
      const data = /** @type {Float32Array} */ (made[name].data);
      return Object.assign(Float32Array.from(data), { dims: [...made[name].dims] });
    });
  } catch (error) {
    throw new BundleError(`${file} cannot be run on [${dims.join(", ")}]: ${words(error, SHOWN)}`, { cause: error });
  }
}
