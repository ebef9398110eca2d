// Line charts over time, drawn by uPlot in the colours of the page.

import uPlot from "../vendor/uplot.js";
import { brief, bytes, clock } from "./format.js";
import { RANGES, useHistory, useRange } from "./history.js";
import { html, useEffect, useMemo, useRef } from "./html.js";
import { onResize } from "./resize.js";
import { change } from "./route.js";

const MIN_SPAN_S = 300;
const HEIGHT_PX = 112;
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const COLOURS = ["--line-1", "--line-2", "--line-3"];

/**
 * @param {{
 *   points: import("./history.js").Points,
 *   labels: string[],
 *   format: (value: number) => string,
 *   label: string,
 *   least?: number,
 * }} props `label` is the title for screen readers; `least` is the minimum upper end of the scale
 */
export function Chart({ points, labels, format, label, least = 1 }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const draw = () => {
      chart.current?.destroy();
      chart.current = createChart(/** @type {HTMLDivElement} */ (place.current), points, labels, format, least);
    };
    draw();
    const element = /** @type {HTMLDivElement} */ (place.current);
    const stop = onResize(element, () => {
      if (element.clientWidth) chart.current?.setSize({ width: element.clientWidth, height: HEIGHT_PX });
    });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", draw);
    scheme.addEventListener("change", draw);
    return () => {
      stop();
      removeEventListener("themechange", draw);
      scheme.removeEventListener("change", draw);
      chart.current?.destroy();
      chart.current = null;
    };
  }, []);
  const range = useRange();
  const last = points[0][points[0].length - 1];
  useEffect(() => {
    chart.current?.setData(points);
  }, [points[0][0], last, points[0].length]);
  return html`<div class="chart" role="img" aria-label=${describe(label, range.label, points, labels, format)} ref=${place}></div>`;
}

/**
 * Shows the label and the current value of each line.
 * @param {{ lines: import("./history.js").Line[], tree: import("./tree.js").Tree, format: (value: number) => string }} props
 */
export function Legend({ lines, tree, format }) {
  return html`
    <p class="now">
      ${lines.map((line, index) => {
        const value = line.now(tree);
        return html`<span class=${`line-${index + 1}`}>
          <i aria-hidden="true"></i> ${line.label} <b>${value === null ? "\u2013" : format(value)}</b>
        </span>`;
      })}
    </p>
  `;
}

/** Chooses the time range of all plots of a page, which is in its URL. */
export function RangeChoice() {
  const range = useRange();
  return html`
    <label>
      <span class="unseen">Time range</span>
      <select class="range" onChange=${(/** @type {any} */ event) => change({ range: event.currentTarget.value })}>
        ${Object.entries(RANGES).map(([name, one]) => html`<option value=${name} selected=${one === range}>Last ${one.label}</option>`)}
      </select>
    </label>
  `;
}

/**
 * Charts fields of an entry over the range of the page.
 * @param {{ title: string, label: string, path: string[], fields: Record<string, string>, tree: import("./tree.js").Tree, hasRange?: boolean }} props
 *   `hasRange` is whether the range is chosen here; `path` is that of the entry; `fields` are the names of fields by the labels of their lines
 */
export function FieldChart({ title, label, path, fields, tree, hasRange = true }) {
  const lines = useMemo(
    () =>
      Object.entries(fields).map(([name, field]) => ({
        label: name,
        leaves: () => [`/${[...path, field].map(encodeURIComponent).join("/")}`],
        now: (/** @type {import("./tree.js").Tree} */ current) => Number(current.at([...path, field]) ?? 0),
      })),
    [path.join("/")],
  );
  const points = useHistory(tree, lines);
  return html`
    <section>
      <h3 class="with-range">${title} ${hasRange && html`<${RangeChoice} />`}</h3>
      <${Legend} lines=${lines} tree=${tree} format=${brief} />
      <${Chart} points=${points} labels=${Object.keys(fields)} format=${brief} label=${label} />
    </section>
  `;
}

/**
 * @param {HTMLElement} place
 * @param {import("./history.js").Points} points
 * @param {string[]} labels
 * @param {(value: number) => string} format
 * @param {number} least
 */
function createChart(place, points, labels, format, least) {
  const style = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--muted"),
    font: `11px ${style.getPropertyValue("--font")}`,
    grid: { stroke: colour("--grid"), width: 1 },
    ticks: { show: false },
  };
  return new /** @type {any} */ (uPlot)(
    {
      width: Math.max(120, place.clientWidth),
      height: HEIGHT_PX,
      padding: [8, 4, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { setScale: false, x: false, y: false } },
      scales: {
        x: { range: (/** @type {any} */ _, /** @type {number?} */ from, /** @type {number?} */ to) => [Math.min(from ?? 0, (to ?? MIN_SPAN_S) - MIN_SPAN_S), to ?? MIN_SPAN_S] },
        y: { range: (/** @type {any} */ _, /** @type {any} */ __, /** @type {number?} */ most) => [0, Math.max(least, (most ?? 0) * 1.1)] },
      },
      series: [
        {},
        ...labels.map((label, index) => ({
          label,
          stroke: colour(COLOURS[index]),
          width: 1.5,
          points: { show: false },
          fill: index === 0 ? colour("--line-1-area") : undefined,
        })),
      ],
      axes: [
        { ...axis, size: 22, space: 80, values: (/** @type {any} */ _, /** @type {number[]} */ times) => times.map(tick) },
        {
          ...axis,
          size: 58,
          space: 32,
          values: (/** @type {any} */ _, /** @type {number[]} */ values) => values.map(format),
          ...(format === bytes ? { incrs: POWERS_OF_TWO } : {}),
        },
      ],
      plugins: [readout(labels, format)],
    },
    points,
    place,
  );
}

/** A uPlot plugin that shows the values at the pointer. @param {string[]} labels @param {(value: number) => string} format */
function readout(labels, format) {
  const box = document.createElement("div");
  box.className = "readout";
  box.hidden = true;
  return {
    hooks: {
      init: (/** @type {any} */ chart) => chart.over.append(box),
      setCursor: (/** @type {any} */ chart) => {
        const index = chart.cursor.idx;
        box.hidden = index == null;
        if (index == null) return;
        const values = labels.map((label, at) => {
          const value = chart.data[at + 1][index];
          return `${labels.length > 1 ? `${label} ` : ""}${value == null ? "\u2013" : format(value)}`;
        });
        box.textContent = `${clock(chart.data[0][index] * 1e3)}  ${values.join("  ")}`;
        box.classList.toggle("left", chart.cursor.left > chart.over.clientWidth / 2);
      },
    },
  };
}

/** Return the text of a tick: the time of day, or the date at midnight. @param {number} time */
function tick(time) {
  const date = new Date(time * 1e3);
  if (!date.getHours() && !date.getMinutes()) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** @param {string} label @param {string} range @param {import("./history.js").Points} points @param {string[]} labels @param {(value: number) => string} format */
function describe(label, range, points, labels, format) {
  const lines = labels.map((name, index) => {
    const values = points[index + 1].filter((value) => value !== null);
    if (!values.length) return `${name}: no data`;
    const maximum = values.reduce((one, other) => Math.max(Number(one), Number(other)), 0);
    return `${name}: now ${format(Number(values[values.length - 1]))}, maximum ${format(Number(maximum))}`;
  });
  return `${label} within the last ${range}. ${lines.join(". ")}.`;
}
