// The current state of a part of /amps: a document, to which changes are applied.
//
// Lists of entries become maps by id, so that a change finds its entry. Runs in workers, too.

/** @typedef {{ id: string, [field: string]: string }} Entry */

export class Tree {
  constructor() {
    /** @type {any} */
    this.root = {};
    /** When the sample was taken, as the server writes it. */
    this.moment = "";
  }

  /** Load a document. @param {any} document @param {string} moment */
  load(document, moment) {
    this.root = withMaps(document);
    this.moment = moment;
  }

  /**
   * Apply a change.
   * @param {{ timestamp: string, changed: Record<string, string>, gone: string[] }} change
   */
  apply({ timestamp, changed, gone }) {
    for (const path of gone) {
      const names = split(path);
      const at = this.at(names.slice(0, -1));
      if (at instanceof Map) at.delete(names[names.length - 1]);
    }
    for (const path in changed) {
      const names = split(path);
      const field = /** @type {string} */ (names.pop());
      let at = this.root;
      for (const name of names) at = step(at, name);
      at[field] = changed[path];
    }
    this.moment = timestamp;
  }

  /** Return the value at a path, given as names or with slashes. @param {string | string[]} path */
  at(path) {
    const names = typeof path === "string" ? split(path) : path;
    let at = this.root;
    for (const name of names) {
      at = at instanceof Map ? at.get(name) : at?.[name];
      if (at === undefined) return undefined;
    }
    return at;
  }

  /** Return the entries at a path. @param {string} path @returns {Entry[]} */
  entries(path) {
    const found = this.at(path);
    return found instanceof Map ? [...found.values()] : [];
  }

  /** Return a value as a number; 0 if it is missing. @param {string} path */
  number(path) {
    return Number(this.at(path) ?? 0);
  }

  /** Return the sum of a field over all entries at a path. @param {string} path @param {string} field */
  sum(path, field) {
    return this.entries(path).reduce((sum, entry) => sum + Number(entry[field] ?? 0), 0);
  }
}

/** @param {any} value @returns {any} */
function withMaps(value) {
  if (Array.isArray(value)) return new Map(value.map((entry) => [entry.id, entry]));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withMaps(one)]));
}

/** @param {any} at @param {string} name */
function step(at, name) {
  if (at instanceof Map) {
    if (!at.has(name)) at.set(name, { id: name });
    return at.get(name);
  }
  return (at[name] ??= {});
}

/** @param {string} path */
function split(path) {
  const names = path.split("/");
  if (names[0] === "") names.shift();
  return path.includes("%") ? names.map(decodeURIComponent) : names;
}
