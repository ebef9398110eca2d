// Lines over time, drawn by uPlot with the page's colours.

import uPlot from "../vendor/uplot.js";
import { bytes } from "./format.js";
import { html, useEffect, useRef } from "./html.js";
import { onResize } from "./resize.js";

const LEAST_SPAN = 300;
const HEIGHT = 112;
const POWERS_OF_TWO = Array.from({ length: 50 }, (_, power) => 2 ** power);
const COLOURS = ["--line-1", "--line-2", "--line-3"];

/**
 * @param {{
 *   points: import("./history.js").Points,
 *   labels: string[],
 *   format: (value: number) => string,
 *   label: string,
 *   least?: number,
 * }} props `label` says what is drawn to those who do not see it; `least` is how far the scale goes at least
 */
export function Chart({ points, labels, format, label, least = 1 }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const draw = () => {
      chart.current?.destroy();
      chart.current = make(/** @type {HTMLDivElement} */ (place.current), points, labels, format, least);
    };
    draw();
    const element = /** @type {HTMLDivElement} */ (place.current);
    const stop = onResize(element, () => {
      if (element.clientWidth) chart.current?.setSize({ width: element.clientWidth, height: HEIGHT });
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
  const last = points[0][points[0].length - 1];
  useEffect(() => {
    chart.current?.setData(points);
  }, [last, points[0].length]);
  return html`<div class="chart" role="img" aria-label=${spoken(label, points, labels, format)} ref=${place}></div>`;
}

/**
 * Which line is which, and how high it is at the moment.
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

/**
 * @param {HTMLElement} place
 * @param {import("./history.js").Points} points
 * @param {string[]} labels
 * @param {(value: number) => string} format
 * @param {number} least
 */
function make(place, points, labels, format, least) {
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
      height: HEIGHT,
      padding: [8, 4, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { setScale: false, x: false, y: false } },
      scales: {
        x: { range: (/** @type {any} */ _, /** @type {number?} */ from, /** @type {number?} */ to) => [Math.min(from ?? 0, (to ?? LEAST_SPAN) - LEAST_SPAN), to ?? LEAST_SPAN] },
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
        { ...axis, size: 22, space: 80, values: (/** @type {any} */ _, /** @type {number[]} */ times) => times.map(minute) },
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

/** Shows the values at the pointer. @param {string[]} labels @param {(value: number) => string} format */
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
        box.textContent = `${new Date(chart.data[0][index] * 1e3).toLocaleTimeString("en-GB")}  ${values.join("  ")}`;
        box.classList.toggle("left", chart.cursor.left > chart.over.clientWidth / 2);
      },
    },
  };
}

/** @param {number} time */
function minute(time) {
  return new Date(time * 1e3).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** @param {string} label @param {import("./history.js").Points} points @param {string[]} labels @param {(value: number) => string} format */
function spoken(label, points, labels, format) {
  const said = labels.map((name, index) => {
    const values = points[index + 1].filter((value) => value !== null);
    if (!values.length) return `${name}: nothing known`;
    const most = values.reduce((one, other) => Math.max(Number(one), Number(other)), 0);
    return `${name}: now ${format(Number(values[values.length - 1]))}, at most ${format(Number(most))}`;
  });
  return `${label} within the last hour. ${said.join(". ")}.`;
}
