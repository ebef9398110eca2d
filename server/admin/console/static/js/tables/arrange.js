// Filters and sorts the rows of a table. Runs in workers and on the page.

/**
 * @typedef {"text" | "number" | "count" | "rate" | "bytes" | "seconds" | "microseconds" | "percent" | "moment" | "instant" | "flag"} Kind
 *
 * @typedef {object} Column
 * @property {string} key     the field of an entry
 * @property {string} label
 * @property {Kind} [kind]    default: text
 * @property {number} [width] relative; the sum of all columns is the width of the table
 * @property {string} [note]  stands beside the label
 * @property {string} [about] the tooltip
 * @property {(row: any) => string | number} [of] computes the value, if it is not a field
 *
 * @typedef {object} View
 * @property {string} find        words that a row must contain; `field=value` for one field
 * @property {string} sort        key of a column
 * @property {boolean} descending
 */

/**
 * Return the rows of a view, in its order.
 * @template {{ id: string }} Row
 * @param {Iterable<Row>} rows
 * @param {Column[]} columns
 * @param {View} view
 * @returns {Row[]}
 */
export function arrange(rows, columns, view) {
  const matches = rowFilter(columns, view.find);
  const found = [];
  for (const row of rows) if (matches(row)) found.push(row);
  const column = columns.find((one) => one.key === view.sort);
  if (!column) return found;
  const sign = view.descending ? -1 : 1;
  const keyed = found.map((row) => ({ row, key: sortKey(row, column) }));
  keyed.sort((one, other) => sign * compare(one.key, other.key) || compare(Number(one.row.id), Number(other.row.id)));
  return keyed.map(({ row }) => row);
}

/** Return the value of a cell. @param {any} row @param {Column} column */
export function valueOf(row, column) {
  return column.of ? column.of(row) : row[column.key] ?? "";
}

/** Return whether the cells of a column are numbers. @param {Column} column */
export function isNumeric(column) {
  return !["text", "moment", "instant", undefined].includes(column.kind);
}

/** @param {any} row @param {Column} column */
function sortKey(row, column) {
  const value = valueOf(row, column);
  if (!isNumeric(column)) return String(value).toLowerCase();
  const number = Number(value);
  return Number.isNaN(number) ? Infinity : number; // behind all numbers
}

/** @param {string | number} one @param {string | number} other */
function compare(one, other) {
  if (one === other || (one !== one && other !== other)) return 0;
  return one < other ? -1 : 1;
}

/** @param {Column[]} columns @param {string} text */
function rowFilter(columns, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const tests = words.map((word) => {
    const [, field, value] = /^([a-z_]+)=(.*)$/.exec(word) ?? [];
    if (field) return (/** @type {any} */ row) => String(row[field] ?? "").toLowerCase() === value;
    return (/** @type {any} */ row) =>
      columns.some((column) => String(valueOf(row, column)).toLowerCase().includes(word));
  });
  return (/** @type {any} */ row) => tests.every((test) => test(row));
}
