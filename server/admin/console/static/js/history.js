// The values of a time until now, kept up to date.

import { useEffect, useRef, useState } from "./html.js";
import { instant, moment } from "./format.js";
import { request } from "./request.js";
import { useRoute } from "./route.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Points of a line, whatever the range: the server averages. */
const MAX_POINTS = 300;

/** The ranges to choose from, by their names in the URL: their words, and milliseconds. @type {Record<string, { label: string, span: number }>} */
export const RANGES = {
  "5m": { label: "5 minutes", span: 5 * MINUTE },
  "1h": { label: "hour", span: HOUR },
  "6h": { label: "6 hours", span: 6 * HOUR },
  "24h": { label: "24 hours", span: DAY },
  "7d": { label: "7 days", span: 7 * DAY },
  "30d": { label: "30 days", span: 30 * DAY },
};

/** Return the range in the URL; the last hour without one. */
export function useRange() {
  const name = useRoute().params.range ?? "";
  return RANGES[name] ?? RANGES["1h"];
}

/**
 * Points of some lines in the format of uPlot: times in seconds, then the values of each line.
 * @typedef {[number[], ...(number | null)[][]]} Points
 */

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {(tree: import("./tree.js").Tree) => string[]} leaves  paths of the values to aggregate
 * @property {(tree: import("./tree.js").Tree) => number | null} now
 * @property {number} [scale] factor for past values
 * @property {"sum" | "max"} [joined] the aggregate of several leaves; default: their sum
 */

/**
 * Return the points of some lines in the range of the page, including new values.
 * @param {import("./tree.js").Tree} tree
 * @param {Line[]} lines must not change
 * @returns {Points}
 */
export function useHistory(tree, lines) {
  const { span } = useRange();
  const shown = useRef(span);
  const points = useRef(/** @type {Map<number, (number | null)[]>} */ (new Map()));
  const [, setVersion] = useState(0);
  const isKnown = Boolean(tree.moment);
  if (shown.current !== span) points.current = new Map();
  shown.current = span;
  useEffect(() => {
    if (!isKnown) return undefined;
    const controller = new AbortController();
    loadAll(tree, lines, span, controller.signal).then(
      (loaded) => {
        points.current = new Map([...loaded, ...points.current].sort(([one], [other]) => one - other));
        setVersion((version) => version + 1);
      },
      () => {}, // new values are shown nevertheless
    );
    return () => controller.abort();
  }, [isKnown, span]);
  if (tree.moment) {
    const now = instant(tree.moment);
    const width = span / MAX_POINTS;
    const last = [...points.current.keys()].pop();
    // a new value replaces the one before within the width of a point
    if (last !== undefined && points.current.size > 1 && Math.floor((last * 1e3) / width) === Math.floor(now / width)) points.current.delete(last);
    points.current.set(now / 1e3, lines.map((line) => line.now(tree)));
    for (const time of points.current.keys()) {
      if (time * 1e3 >= now - span) break;
      points.current.delete(time);
    }
  }
  const times = [...points.current.keys()];
  const rows = [...points.current.values()];
  return [times, ...lines.map((_, index) => rows.map((row) => row[index]))];
}

/**
 * @param {import("./tree.js").Tree} tree
 * @param {Line[]} lines
 * @param {number} span
 * @param {AbortSignal} signal
 */
async function loadAll(tree, lines, span, signal) {
  // the same for all, so that their averages are of the same moments
  const now = Date.now();
  const range = `t0=${moment(now - span)}&t1=${moment(now)}&points=${MAX_POINTS}`;
  const found = await Promise.all(lines.map((line) => loadLine(tree, line, range, signal)));
  const times = [...new Set(found.flatMap((values) => [...values.keys()]))].sort((one, other) => one - other);
  return times.map((time) => /** @type {[number, (number | null)[]]} */ ([time, found.map((values) => values.get(time) ?? null)]));
}

/**
 * @param {import("./tree.js").Tree} tree
 * @param {Line} line
 * @param {string} range
 * @param {AbortSignal} signal
 */
async function loadLine(tree, line, range, signal) {
  const pasts = await Promise.all(line.leaves(tree).map((leaf) => loadLeaf(leaf, range, signal)));
  /** @type {Map<number, number>} */
  const joined = new Map();
  for (const past of pasts) {
    for (const [time, value] of past) {
      const scaled = value * (line.scale ?? 1);
      const before = joined.get(time);
      if (before === undefined) joined.set(time, scaled);
      else joined.set(time, line.joined === "max" ? Math.max(before, scaled) : before + scaled);
    }
  }
  return joined;
}

/**
 * Load the averages of a leaf within a time.
 * @param {string} leaf
 * @param {string} range parameters of the request
 * @param {AbortSignal} signal
 * @returns {Promise<[number, number][]>} pairs of time in seconds and value
 */
async function loadLeaf(leaf, range, signal) {
  const response = await request(`${leaf}.csv?${range}`, { signal });
  if (!response.ok) return [];
  const lines = (await response.text()).trim().split("\n").filter(Boolean);
  return lines.map((line) => {
    const [when, value] = line.split(",");
    return [instant(when) / 1e3, Number(value)];
  });
}
