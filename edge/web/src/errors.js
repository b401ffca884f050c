/** Errors that are a person's to mend, with the names of the Python client's. */

/** Root of these errors. */
export class AttncemError extends Error {
  name = "AttncemError";
}

/** An option that cannot be: names it and the allowed values. */
export class ConfigError extends AttncemError {
  name = "ConfigError";
}

/** A picture that cannot be read, or pixels of the wrong shape. */
export class DataError extends AttncemError {
  name = "DataError";
}

/** A bundle that is damaged, changed or of another version. */
export class BundleError extends AttncemError {
  name = "BundleError";
}

/** A server that does not answer, or refuses: names its address and the reason. */
export class ServerError extends AttncemError {
  name = "ServerError";
}

/**
 * What an error says, in one line of limited length.
 * @param {unknown} error
 * @param {number} [most]
 */
export function words(error, most = 300) {
  const message = error instanceof Error ? error.message || error.name : String(error);
  return message
    .replace(/[\p{C}\s]+/gu, " ")
    .trim()
    .slice(0, most);
}
