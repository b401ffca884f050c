/** The client of a bundle in a page: everything that a page may use. */

import { Client, openClient } from "./client.js";
import { AttncemError, BundleError, ConfigError, DataError, ServerError } from "./errors.js";
import { configure, openGraph } from "./graph.js";
import { ask, makeRequest } from "./wire.js";

const attncem = {
  AttncemError,
  BundleError,
  Client,
  ConfigError,
  DataError,
  ServerError,
  ask,
  configure,
  makeRequest,
  openClient,
  openGraph,
};
Object.assign(globalThis, { attncem });

export {
  AttncemError,
  ask,
  BundleError,
  Client,
  ConfigError,
  configure,
  DataError,
  makeRequest,
  openClient,
  openGraph,
  ServerError,
};
