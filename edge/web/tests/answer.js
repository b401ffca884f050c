/** Answers tests: reads JSON [[name, ...arguments], …] from the standard input, writes JSON [answer, …]. */

import { webcrypto } from "node:crypto";
import { copyFile, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Channel } from "../src/channel.js";
import { turn } from "../src/decoding.js";
import { withoutOrientation } from "../src/exif.js";
import { identityOf } from "../src/identity.js";
import { readManifest } from "../src/manifest.js";
import * as noise from "../src/noise.js";
import { convert } from "../src/pictures.js";

globalThis.crypto ??= webcrypto; // node 18 has it under this name alone
const bytes = (text) => Uint8Array.from(Buffer.from(text, "base64"));
const text = (array) => Buffer.from(array).toString("base64");
const built = new URL("../../../src/attncem/live/built/", import.meta.url);
let web;

/** The built client, as a page gets it. */
async function loaded() {
  if (web === undefined) {
    const folder = await mkdtemp(join(tmpdir(), "attncem-web-"));
    await copyFile(new URL("attncem-web.js", built), join(folder, "client.mjs")); // older Node.js goes by the ending
    web = await import(pathToFileURL(join(folder, "client.mjs")));
    await rm(folder, { recursive: true });
    await web.configure({ wasm: await readFile(new URL("ort-wasm-simd-threaded.wasm", built)) });
  }
  return web;
}

const manifestOf = async (folder) => readManifest(await readFile(`${folder}/manifest.json`, "utf8"));

async function opened(folder, options = {}) {
  const [manifest, graph] = await Promise.all(
    ["manifest.json", "client.onnx"].map((it) => readFile(`${folder}/${it}`)),
  );
  const key = options.key && bytes(options.key);
  return (await loaded()).openClient({ manifest: manifest.toString(), graph, ...options, key });
}

const ANSWERS = {
  draw: (secret, law, count, stage) => Array.from(noise.draw(bytes(secret), law, count, stage)),
  secret: (key, fingerprint, stage, pixels) => text(noise.keyedSecret(bytes(key), fingerprint, stage, bytes(pixels))),
  release(stages, fingerprint, z, shape, { pixels = "", key, secret }) {
    const channel = new Channel(stages, fingerprint);
    if (secret) crypto.getRandomValues = (array) => (array.set(bytes(secret)), array);
    const released = channel.release(Float32Array.from(z), shape, bytes(pixels), key && bytes(key));
    delete crypto.getRandomValues;
    return Array.from(released);
  },
  channel: (stages, scheme) => void new Channel(stages, "", scheme),
  identity: (manifest) => identityOf(manifest),
  manifest: (source) => readManifest(source).name,
  accept(text) {
    const { channel, fingerprint, noise_scheme } = readManifest(text);
    void new Channel(channel, fingerprint, noise_scheme);
  },
  convert(pixels, width, height, facts, orientation = 1) {
    const made = convert(turn({ pixels: bytes(pixels), width, height }, orientation), facts);
    return [text(made.pixels), made.steps];
  },
  orientation: (file) => withoutOrientation(bytes(file)).orientation,
  async look(folder, pictures) {
    const client = await opened(folder);
    const looks = [];
    for (const it of pictures) {
      const { z, answers, confidence, onDevice } = await client.look(bytes(it));
      looks.push({ z: [...z], answers: answers && [...answers], confidence, onDevice });
    }
    return looks;
  },
  async releases(folder, options, pictures) {
    const client = await opened(folder, options);
    const rows = [];
    for (const it of pictures.map(bytes)) rows.push(Array.from(await client.release((await client.look(it)).z, it)));
    return rows;
  },
  open: async (folder, options) => void (await opened(folder, options)),
  async graph(file, names, numbers, dims) {
    const run = await (await loaded()).openGraph(await readFile(file), names);
    return (await run(Float32Array.from(numbers), dims)).map((it) => [[...it], it.dims]);
  },
  async request(folder, released) {
    const { body, headers } = (await loaded()).makeRequest(Float32Array.from(released), await manifestOf(folder));
    return [text(body), headers];
  },
  async ask(folder, url, released, connection) {
    const [{ ask, makeRequest }, manifest] = [await loaded(), await manifestOf(folder)];
    const request = makeRequest(Float32Array.from(released), manifest);
    return [...(await ask(url, manifest, request, connection))];
  },
};

async function answer([name, ...rest]) {
  try {
    return { answer: await ANSWERS[name](...rest) };
  } catch (error) {
    return { error: error.name, message: error.message };
  }
}

let input = "";
for await (const part of process.stdin) input += part;
const answers = [];
for (const question of JSON.parse(input)) answers.push(await answer(question));
process.stdout.write(JSON.stringify(answers));
