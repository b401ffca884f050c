/**
 * A picture of any size and colour, converted to the input of a client, with the rules of attncem_edge/pictures.py.
 *
 * @typedef {{pixels: Uint8Array, steps: string[]}} Converted pixels [C, H, W], and how they came about
 * @typedef {import("./manifest.js").Manifest["image"]} ImageFacts
 */

import { decode } from "./decoding.js";
import { roundEven } from "./numbers.js";
import { resize } from "./resampling.js";

/** Pillow's shares of red, green and blue in grey, of 2^16. */
const [RED, GREEN, BLUE] = [19595, 38470, 7471];

/** @param {import("./decoding.js").Source} source @param {ImageFacts} facts @returns {Promise<Converted>} */
export async function readPicture(source, facts) {
  const { colours, turned } = await decode(source);
  const { pixels, steps } = convert(colours, facts);
  return { pixels, steps: turned ? ["EXIF orientation applied", ...steps] : steps };
}

/**
 * The pixels of the client's size for a picture's colours.
 * @param {import("./decoding.js").Colours} colours
 * @param {ImageFacts} facts
 * @returns {Converted}
 */
export function convert(colours, { channels, height, width, squash = false }) {
  const box = squash
    ? { left: 0, top: 0, width: colours.width, height: colours.height }
    : middle(colours, width, height);
  const steps = [...stepsOfColours(colours.pixels, channels), ...stepsOfSize(colours, box, width, height)];
  const part = cut(colours, box, channels);
  return { pixels: byChannel(resize(part, width, height)), steps };
}

/**
 * The largest part around the centre with the aspect ratio of the client.
 * @param {{width: number, height: number}} size
 * @param {number} width
 * @param {number} height
 */
function middle(size, width, height) {
  const scale = Math.min(size.width / width, size.height / height);
  const same = size.width * height === size.height * width;
  const box = same ? size : { width: side(width * scale), height: side(height * scale) };
  const [left, top] = [(size.width - box.width) / 2, (size.height - box.height) / 2].map(Math.floor);
  return { left, top, width: box.width, height: box.height };
}

/** @param {number} length */
const side = (length) => Math.max(1, roundEven(length));

/**
 * A part of a picture in the client's channels, without its transparency.
 * @param {import("./decoding.js").Colours} colours
 * @param {{left: number, top: number, width: number, height: number}} box
 * @param {number} channels
 */
function cut({ pixels, width: line }, { left, top, width, height }, channels) {
  const part = new Uint8Array(width * height * channels);
  for (let y = 0, place = 0; y < height; y++)
    for (let x = 0, from = 4 * ((top + y) * line + left); x < width; x++, from += 4)
      if (channels === 1) part[place++] = grey(pixels, from);
      else for (let c = 0; c < 3; c++) part[place++] = pixels[from + c];
  return { pixels: part, width, height, channels };
}

/** @param {Uint8Array | Uint8ClampedArray} pixels @param {number} i */
const grey = (pixels, i) => (pixels[i] * RED + pixels[i + 1] * GREEN + pixels[i + 2] * BLUE + 0x8000) >> 16;

/**
 * Pixels [C, H, W] of a picture.
 * @param {import("./resampling.js").Picture} picture
 */
function byChannel({ pixels, width, height, channels }) {
  const size = width * height;
  return Uint8Array.from({ length: size * channels }, (_, i) => pixels[(i % size) * channels + Math.floor(i / size)]);
}

/** @param {Uint8Array | Uint8ClampedArray} pixels @param {number} channels */
function stepsOfColours(pixels, channels) {
  let [transparent, coloured] = [false, false];
  for (let i = 0; i < pixels.length; i += 4) {
    transparent ||= pixels[i + 3] < 255;
    coloured ||= pixels[i] !== pixels[i + 1] || pixels[i] !== pixels[i + 2];
  }
  return [
    ...(transparent ? ["transparency left out"] : []),
    ...(channels === 1 && coloured ? ["colours made grey"] : []),
  ];
}

/**
 * @param {{width: number, height: number}} size
 * @param {{width: number, height: number}} box
 * @param {number} width
 * @param {number} height
 */
function stepsOfSize(size, box, width, height) {
  const isCut = box.width !== size.width || box.height !== size.height;
  const isScaled = box.width !== width || box.height !== height;
  return [
    ...(isCut ? [`cropped to the middle ${box.width}x${box.height} of ${size.width}x${size.height} px`] : []),
    ...(isScaled ? [`scaled from ${box.width}x${box.height} to ${width}x${height} px`] : []),
  ];
}
