/**
 * A picture's colours, by the browser's decoders: RGBA, upright, not premultiplied, without conversion of colours.
 *
 * @typedef {{pixels: Uint8Array | Uint8ClampedArray, width: number, height: number}} Colours
 * @typedef {HTMLCanvasElement | OffscreenCanvas | HTMLVideoElement | HTMLImageElement | ImageBitmap} Drawable
 * @typedef {Blob | ImageData | Drawable} Source
 */

import { DataError, words } from "./errors.js";
import { withoutOrientation } from "./exif.js";

/** Largest number of pixels of a picture, as in attncem_edge/decoding.py. */
const MOST_PIXELS = 89_478_485;
/**
 * Where a turned picture's pixel (x, y) was, by its EXIF orientation; w and h are the size before.
 * @type {Record<number, (x: number, y: number, w: number, h: number) => [number, number]>}
 */
const TURNS = {
  2: (x, y, w) => [w - 1 - x, y],
  3: (x, y, w, h) => [w - 1 - x, h - 1 - y],
  4: (x, y, w, h) => [x, h - 1 - y],
  5: (x, y) => [y, x],
  6: (x, y, w, h) => [y, h - 1 - x],
  7: (x, y, w, h) => [w - 1 - y, h - 1 - x],
  8: (x, y, w) => [w - 1 - y, x],
};
const SIDEWAYS = 5;

/**
 * The colours of a source, and whether EXIF orientation turned it.
 * @param {Source} source
 * @returns {Promise<{colours: Colours, turned: boolean}>}
 */
export async function decode(source) {
  if (source instanceof Blob) return decodeFile(source);
  if (isA(source, "ImageData")) {
    const { data, width, height } = /** @type {ImageData} */ (source);
    return { colours: { pixels: data, width, height }, turned: false };
  }
  return { colours: drawn(/** @type {any} */ (source), "the picture"), turned: false };
}

/** @param {Blob} file */
async function decodeFile(file) {
  const name = "name" in file && typeof file.name === "string" ? file.name : "the picture";
  if (file.size === 0) throw new DataError(`${name} is empty; use another file`);
  const { orientation, upright } = withoutOrientation(new Uint8Array(await file.arrayBuffer()));
  const bitmap = await bitmapOf(new Blob([/** @type {BlobPart} */ (upright)], { type: file.type }), name);
  const colours = drawn(bitmap, name);
  const exact = isOpaque(colours) ? colours : (unmultiplied(bitmap) ?? colours);
  bitmap.close();
  return { colours: turn(exact, orientation), turned: orientation in TURNS };
}

/** @param {Blob} file @param {string} name */
async function bitmapOf(file, name) {
  try {
    return await createImageBitmap(file, { premultiplyAlpha: "none", colorSpaceConversion: "none" });
  } catch (error) {
    throw new DataError(`${name} cannot be read as an image: ${words(error)}; use another file`, { cause: error });
  }
}

/**
 * What a canvas shows of a source.
 * @param {any} source
 * @param {string} name
 * @returns {Colours}
 */
function drawn(source, name) {
  const width = source.videoWidth ?? source.naturalWidth ?? source.width;
  const height = source.videoHeight ?? source.naturalHeight ?? source.height;
  if (!(width > 0 && height > 0)) throw new DataError(`${name} has no pixels yet`);
  if (width * height > MOST_PIXELS)
    throw new DataError(`${name} has more than ${Math.round(MOST_PIXELS / 1e6)} million pixels; save it smaller`);
  try {
    const context = contextOf(width, height);
    context.drawImage(source, 0, 0);
    return { pixels: context.getImageData(0, 0, width, height).data, width, height };
  } catch (error) {
    throw new DataError(`${name} cannot be read: ${words(error)}`, { cause: error });
  }
}

/** @param {number} width @param {number} height */
function contextOf(width, height) {
  const context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  if (context === null) throw new Error("this browser has no canvas");
  return context;
}

/** @param {Colours} colours */
function isOpaque({ pixels }) {
  for (let i = 3; i < pixels.length; i += 4) if (pixels[i] < 255) return false;
  return true;
}

/**
 * The colours of a transparent picture, which a canvas would round; undefined where the browser has no WebGL for it.
 * @param {ImageBitmap} bitmap
 * @returns {Colours | undefined}
 */
function unmultiplied(bitmap) {
  const { width, height } = bitmap;
  const gl = new OffscreenCanvas(1, 1).getContext("webgl");
  if (gl === null || Math.max(width, height) > gl.getParameter(gl.MAX_TEXTURE_SIZE)) return undefined;
  gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, gl.createFramebuffer());
  gl.framebufferTexture2D(
    gl.FRAMEBUFFER,
    gl.COLOR_ATTACHMENT0,
    gl.TEXTURE_2D,
    gl.getParameter(gl.TEXTURE_BINDING_2D),
    0,
  );
  const pixels = new Uint8Array(width * height * 4);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
  const failed = gl.getError() !== gl.NO_ERROR;
  gl.getExtension("WEBGL_lose_context")?.loseContext(); // a browser keeps few contexts at once
  return failed ? undefined : { pixels, width, height };
}

/**
 * A picture turned as its EXIF orientation asks.
 * @param {Colours} colours
 * @param {number} orientation
 * @returns {Colours}
 */
export function turn({ pixels, width, height }, orientation) {
  const placeOf = TURNS[orientation];
  if (placeOf === undefined) return { pixels, width, height };
  const size = orientation >= SIDEWAYS ? { width: height, height: width } : { width, height };
  const [before, after] = [new Uint32Array(aligned(pixels).buffer), new Uint32Array(width * height)];
  for (let y = 0; y < size.height; y++)
    for (let x = 0; x < size.width; x++) {
      const [column, row] = placeOf(x, y, width, height);
      after[y * size.width + x] = before[row * width + column];
    }
  return { pixels: new Uint8Array(after.buffer), ...size };
}

/**
 * The same bytes at the beginning of a buffer.
 * @param {Uint8Array | Uint8ClampedArray} pixels
 */
const aligned = (pixels) => (pixels.byteLength === pixels.buffer.byteLength ? pixels : pixels.slice());

/** @param {unknown} source @param {string} kind */
const isA = (source, kind) => Object.prototype.toString.call(source) === `[object ${kind}]`;
