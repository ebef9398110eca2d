// A virtual table: only the visible rows are in the page, however many there are.
//
// All rows have the same height, so the position of a row follows from its number; an empty row above
// and one below replace the others. It is an ARIA grid: the arrow keys move the active row, Enter opens
// it, and aria-rowcount and aria-rowindex have the position in the whole table.

import { html, useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { bytes, clock, count, duration, percent, preciseClock, visible } from "../format.js";
import { onResize } from "../resize.js";
import { isNumeric } from "./arrange.js";

const OVERSCAN_ROWS = 12;
const REM_PER_UNIT = 0.8;
const FORMATS = {
  text: (/** @type {any} */ value) => visible(String(value)),
  count,
  rate: count,
  bytes,
  seconds: duration,
  microseconds: (/** @type {any} */ value) => (value === "" ? duration("") : duration(Number(value) / 1e6)),
  percent,
  moment: (/** @type {any} */ value) => clock(String(value)),
  instant: (/** @type {any} */ value) => preciseClock(String(value)),
  number: (/** @type {any} */ value) => visible(String(value)),
  flag: (/** @type {any} */ value) => (Number(value) ? "yes" : "no"),
};

/** Return the text of a cell. @param {import("./arrange.js").Column} column @param {string | number} value */
export function cellText(column, value) {
  return FORMATS[column.kind ?? "text"](value);
}

/** Return the class of a marked row. @param {boolean | "bad" | undefined} mark */
function markOf(mark) {
  return mark && (mark === "bad" ? "marked bad" : "marked");
}

/**
 * @param {{
 *   label: string,
 *   columns: import("./arrange.js").Column[],
 *   shown: import("./source.js").Shown,
 *   sort: string,
 *   descending: boolean,
 *   selected?: string,
 *   onSort: (key: string, descending: boolean) => void,
 *   onOpen?: (id: string) => void,
 *   onWindow: (first: number, count: number) => void,
 *   isMarked?: (cells: (string | number)[]) => boolean | "bad",
 *   cellClass?: (id: string, column: import("./arrange.js").Column) => string,
 *   empty?: string,
 * }} props
 */
export function Table({
  label, columns, shown, sort, descending, selected = "", onSort, onOpen, onWindow, isMarked, cellClass, empty = "No rows.",
}) {
  const id = useId();
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const rowHeight = useRowHeight();
  const openCallback = useRef(onOpen);
  openCallback.current = onOpen;
  const [active, setActive] = useState(-1);
  const first = shown.first;
  const after = Math.max(0, shown.found - first - shown.rows.length);

  const updateWindow = () => {
    const { scrollTop, clientHeight } = /** @type {HTMLDivElement} */ (box.current);
    const top = Math.max(0, Math.floor(scrollTop / rowHeight) - OVERSCAN_ROWS);
    onWindow(top, Math.ceil(clientHeight / rowHeight) + 2 * OVERSCAN_ROWS);
  };
  useLayoutEffect(() => {
    updateWindow();
    return onResize(/** @type {HTMLDivElement} */ (box.current), updateWindow);
  }, [rowHeight]);

  const move = (/** @type {number} */ to) => {
    const next = Math.max(0, Math.min(shown.found - 1, to));
    setActive(next);
    const { scrollTop, clientHeight } = /** @type {HTMLDivElement} */ (box.current);
    const top = next * rowHeight;
    const height = clientHeight - rowHeight; // the head stays visible
    if (top < scrollTop) box.current?.scrollTo({ top });
    else if (top + rowHeight > scrollTop + height) box.current?.scrollTo({ top: top + rowHeight - height });
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (event.target !== box.current) return;
    const page = Math.max(1, Math.floor(/** @type {HTMLDivElement} */ (box.current).clientHeight / rowHeight) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) move(active + steps[/** @type {keyof typeof steps} */ (event.key)]);
    else if (event.key === "Enter") {
      const row = shown.rows[active - first];
      if (row) onOpen?.(row.id);
    } else return;
    event.preventDefault();
  };

  const click = useCallback((/** @type {number} */ index, /** @type {string} */ row) => {
    setActive(index);
    openCallback.current?.(row);
  }, []);
  // Elements are reused: their key is the position in the window, not the entry, so that scrolling
  // changes texts, and creates and removes no elements.
  const rows = shown.rows.map((row, index) => html`
    <${RowView}
      key=${(first + index) % shown.rows.length}
      id=${`${id}-${first + index}`}
      row=${row}
      index=${first + index}
      columns=${columns}
      tone=${[first + index === active && "active", markOf(isMarked?.(row.cells))].filter(Boolean).join(" ")}
      isSelected=${row.id === selected}
      classes=${cellClass ? columns.map((column) => cellClass(row.id, column)).join(",") : ""}
      onClick=${click}
    />
  `);
  const wide = columns.reduce((sum, column) => sum + (column.width ?? 12), 0);
  return html`
    <div
      class="grid"
      ref=${box}
      role="grid"
      tabindex="0"
      aria-label=${label}
      aria-rowcount=${shown.found + 1}
      aria-colcount=${columns.length}
      aria-activedescendant=${active >= first && active < first + shown.rows.length ? `${id}-${active}` : undefined}
      onScroll=${updateWindow}
      onKeyDown=${onKey}
    >
      <table role="presentation" style=${{ minWidth: `${wide * REM_PER_UNIT}rem` }}>
        <colgroup>
          ${columns.map((column) => html`<col style=${{ width: `${((column.width ?? 12) / wide) * 100}%` }} />`)}
        </colgroup>
        <thead role="rowgroup">
          <tr role="row" aria-rowindex="1">
            ${columns.map((column) => html`
              <${Head} column=${column} sort=${sort} descending=${descending} onSort=${onSort} />
            `)}
          </tr>
        </thead>
        <tbody role="rowgroup">
          ${first > 0 && html`<tr role="presentation" style=${{ height: `${first * rowHeight}px` }}></tr>`}
          ${rows}
          ${after > 0 && html`<tr role="presentation" style=${{ height: `${after * rowHeight}px` }}></tr>`}
          ${!shown.found && html`<tr role="row"><td role="gridcell" colspan=${columns.length} class="empty">${empty}</td></tr>`}
        </tbody>
      </table>
    </div>
  `;
}

/**
 * One row, rendered again only when it has changed.
 * @param {{
 *   id: string,
 *   row: import("./source.js").Shown["rows"][number],
 *   index: number,
 *   columns: import("./arrange.js").Column[],
 *   tone: string,
 *   isSelected: boolean,
 *   classes: string,
 *   onClick: (index: number, id: string) => void,
 * }} props `classes` are the comma-separated classes of the cells
 */
function RowView({ id, row, index, columns, tone, isSelected, classes, onClick }) {
  return useMemo(() => {
    const own = classes.split(",");
    return html`
      <tr
        id=${id}
        role="row"
        data-id=${row.id}
        aria-rowindex=${index + 2}
        aria-selected=${isSelected}
        class=${tone}
        onClick=${() => onClick(index, row.id)}
      >
        ${columns.map((column, at) => {
          const text = cellText(column, row.cells[at]);
          const kind = isNumeric(column) ? "number" : "";
          return html`<td role="gridcell" class=${`${kind} ${own[at] ?? ""}`.trim()} title=${text.length > 12 ? text : undefined}>${text}</td>`;
        })}
      </tr>
    `;
  }, [id, row.id, row.cells.join("\u0000"), columns, tone, isSelected, classes]);
}

/** @param {{ column: import("./arrange.js").Column, sort: string, descending: boolean, onSort: Function }} props */
function Head({ column, sort, descending, onSort }) {
  const isSorted = column.key === sort;
  const order = descending ? "descending" : "ascending";
  const next = isSorted ? !descending : isNumeric(column) && column.key !== "id";
  return html`
    <th
      role="columnheader"
      scope="col"
      class=${isNumeric(column) ? "number" : ""}
      aria-sort=${isSorted ? order : "none"}
      title=${column.about}
    >
      <button onClick=${() => onSort(column.key, next)}>
        ${column.label}${column.note && html` <small>${column.note}</small>`}<span aria-hidden="true" class="arrow">${isSorted ? (descending ? "\u2193" : "\u2191") : ""}</span>
      </button>
    </th>
  `;
}

/** Return the height of a row in pixels, which follows the font size. */
function useRowHeight() {
  const [height, setHeight] = useState(32);
  useEffect(() => setHeight(parseFloat(getComputedStyle(document.documentElement).fontSize) * 2), []);
  return height;
}
