/**
 * The EXIF orientation of a JPEG, PNG or WebP file. Browsers differ in which files they turn, so the page turns them.
 */

const ORIENTATION = 0x0112;
const SHORT = 3;

/**
 * The orientation that a file asks for, 1 where none, and the same file with orientation 1.
 * @param {Uint8Array} file
 * @returns {{orientation: number, upright: Uint8Array}}
 */
export function withoutOrientation(file) {
  const entry = findEntry(file);
  if (entry === undefined) return { orientation: 1, upright: file };
  const upright = file.slice();
  new DataView(upright.buffer).setUint16(entry.place, 1, entry.little);
  return { orientation: entry.value, upright };
}

/** @param {Uint8Array} file @returns {{place: number, little: boolean, value: number} | undefined} */
function findEntry(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  try {
    const start = FORMATS.map((find) => find(view)).find((place) => place !== undefined);
    return start === undefined ? undefined : entryOf(view, start);
  } catch (error) {
    if (error instanceof RangeError) return undefined; // damaged EXIF data says nothing about the pixels
    throw error;
  }
}

/**
 * The entry of the orientation in the first table of EXIF data.
 * @param {DataView} view
 * @param {number} start
 */
function entryOf(view, start) {
  const little = view.getUint16(start) === 0x4949;
  const table = start + view.getUint32(start + 4, little);
  for (let i = 0; i < view.getUint16(table, little); i++) {
    const entry = table + 2 + 12 * i;
    if (view.getUint16(entry, little) === ORIENTATION && view.getUint16(entry + 2, little) === SHORT)
      return { place: entry + 8, little, value: view.getUint16(entry + 8, little) };
  }
  return undefined;
}

/**
 * Where EXIF data begins in each format.
 * @type {((view: DataView) => number | undefined)[]}
 */
const FORMATS = [inJpeg, inPng, inWebp];

/** @param {DataView} view */
function inJpeg(view) {
  if (view.getUint16(0) !== 0xffd8) return undefined;
  for (let place = 2; view.getUint16(place) > 0xff00 && view.getUint16(place) !== 0xffda;) {
    if (view.getUint16(place) === 0xffe1 && word(view, place + 4) === "Exif") return place + 10;
    place += 2 + view.getUint16(place + 2);
  }
  return undefined;
}

/** @param {DataView} view */
function inPng(view) {
  if (word(view, 0) !== "\x89PNG") return undefined;
  for (let place = 8; place + 8 <= view.byteLength; place += 12 + view.getUint32(place))
    if (word(view, place + 4) === "eXIf") return place + 8;
  return undefined;
}

/** @param {DataView} view */
function inWebp(view) {
  if (word(view, 0) !== "RIFF" || word(view, 8) !== "WEBP") return undefined;
  for (let place = 12; place + 8 <= view.byteLength;) {
    const size = view.getUint32(place + 4, true);
    if (word(view, place) === "EXIF") return place + (word(view, place + 8) === "Exif" ? 14 : 8);
    place += 8 + size + (size % 2);
  }
  return undefined;
}

/**
 * Four letters.
 * @param {DataView} view
 * @param {number} place
 */
const word = (view, place) => String.fromCharCode(...[0, 1, 2, 3].map((i) => view.getUint8(place + i)));
