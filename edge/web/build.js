/** Writes the client as one file, the runtime's WebAssembly and their licences: node build.js [FOLDER]. */

import { build } from "esbuild";
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const folder = process.argv[2] ?? here("../../src/attncem/live/built");
const WASM = "ort-wasm-simd-threaded.wasm";
/** Each package in the built files, with its licence; the npm package of onnxruntime-web has neither of its files. */
const LICENCES = {
  "onnxruntime-web": ["licenses/onnxruntime-web.txt", "licenses/onnxruntime-notices.txt"],
  "@noble/hashes": ["node_modules/@noble/hashes/LICENSE"],
  esbuild: ["node_modules/esbuild/LICENSE.md"], // a few lines of it are in the file
};

const textOf = async (path) => (await readFile(here(path), "utf8")).trim();
const versionOf = async (name) => JSON.parse(await textOf(`node_modules/${name}/package.json`)).version;
const licenceOf = async ([name, files]) =>
  [`${name} ${await versionOf(name)}`, ...(await Promise.all(files.map(textOf)))].join("\n\n") + "\n";

await mkdir(folder, { recursive: true });
await build({
  entryPoints: [here("src/index.js")],
  outfile: `${folder}/attncem-web.js`,
  bundle: true,
  format: "esm",
  platform: "browser",
  target: "es2022",
  legalComments: "inline",
  minifySyntax: true,
  minifyWhitespace: true,
  logLevel: "warning",
});
await copyFile(here(`node_modules/onnxruntime-web/dist/${WASM}`), `${folder}/${WASM}`);
const licences = await Promise.all(Object.entries(LICENCES).map(licenceOf));
await writeFile(`${folder}/LICENSES.txt`, licences.join(`\n${"=".repeat(80)}\n\n`));
