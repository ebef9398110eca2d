// Draws a directed graph in layers from left to right.
//
// The layer of a node is the length of the longest path to it. Edges that close a cycle are ignored for
// that, and are drawn below, from right to left. Within a layer, nodes are ordered by the mean position
// of their neighbours (two sweeps in each direction), so that few edges cross. That suffices for the
// size of a configuration or a mesh.

import { html, useId } from "./html.js";

const WIDTH = 190;
const LINE_HEIGHT = 17;
const PADDING = 10;
const NODE_GAP = 18;
const LAYER_GAP = 90;

/**
 * @typedef {object} Node
 * @property {string} id
 * @property {string} title
 * @property {(string)[]} lines  below the title
 * @property {string} [tone]     own, bad, missing
 * @property {string} [link]     the target of a click
 * @property {number} [layer]    the minimum layer
 *
 * @typedef {object} Edge
 * @property {string} source
 * @property {string} target
 * @property {string} [text]
 * @property {string} about  a description for the tooltip
 * @property {string} [tone]
 * @property {string} [link]
 *
 * @typedef {object} Picture
 * @property {number} width
 * @property {number} height
 * @property {number} above  height of the edges above the nodes
 * @property {number} below
 * @property {(Node & { x: number, y: number, height: number })[]} nodes
 * @property {(Edge & { path: string, x: number, y: number })[]} edges
 */

/** Compute the layout of a graph. @param {Node[]} nodes @param {Edge[]} edges @returns {Picture} */
export function layoutGraph(nodes, edges) {
  const layers = assignLayers(nodes, edges);
  const placed = new Map();
  let height = 0;
  layers.forEach((layer, number) => {
    let y = 0;
    for (const node of layer) {
      const tall = 2 * PADDING + LINE_HEIGHT * (1 + node.lines.length);
      placed.set(node.id, { ...node, x: number * (WIDTH + LAYER_GAP), y, height: tall });
      y += tall + NODE_GAP;
    }
    height = Math.max(height, y - NODE_GAP);
  });
  for (const layer of layers) centre(layer.map((node) => placed.get(node.id)), height);
  const drawn = edges
    .filter((edge) => placed.has(edge.source) && placed.has(edge.target))
    .map((edge) => ({ ...edge, ...line(placed.get(edge.source), placed.get(edge.target)) }));
  const reaches = drawn.map((edge) => edge.y);
  return {
    width: layers.length * (WIDTH + LAYER_GAP) - LAYER_GAP,
    height,
    above: Math.max(0, LINE_HEIGHT - Math.min(...reaches, height)),
    below: Math.max(0, Math.max(...reaches, 0) + LINE_HEIGHT - height),
    nodes: [...placed.values()],
    edges: drawn,
  };
}

/** @param {{ y: number, height: number }[]} nodes @param {number} height */
function centre(nodes, height) {
  const last = nodes[nodes.length - 1];
  const shift = last ? (height - last.y - last.height) / 2 : 0;
  for (const node of nodes) node.y += shift;
}

/** @param {Node[]} nodes @param {Edge[]} edges @returns {Node[][]} */
function assignLayers(nodes, edges) {
  const layerOf = new Map(nodes.map((node) => [node.id, node.layer ?? 0]));
  const forward = acyclicEdges(nodes, edges);
  for (let hasMoved = true; hasMoved; ) {
    hasMoved = false;
    for (const { source, target } of forward) {
      const least = (layerOf.get(source) ?? 0) + 1;
      if ((layerOf.get(target) ?? 0) >= least) continue;
      layerOf.set(target, least);
      hasMoved = true;
    }
  }
  /** @type {Node[][]} */
  const layers = [];
  for (const node of nodes) (layers[layerOf.get(node.id) ?? 0] ??= []).push(node);
  const full = [...layers].map((layer) => layer ?? []).filter((layer) => layer.length);
  orderNodes(full, edges);
  return full;
}

/** Return the edges without those that close a cycle. @param {Node[]} nodes @param {Edge[]} edges */
function acyclicEdges(nodes, edges) {
  const from = new Map(nodes.map((node) => [node.id, /** @type {Edge[]} */ ([])]));
  for (const edge of edges) if (from.has(edge.target)) from.get(edge.source)?.push(edge);
  /** @type {Edge[]} */
  const found = [];
  const begun = new Set();
  const ended = new Set();
  const visit = (/** @type {string} */ id) => {
    begun.add(id);
    for (const edge of from.get(id) ?? []) {
      if (begun.has(edge.target) && !ended.has(edge.target)) continue;
      found.push(edge);
      if (!begun.has(edge.target)) visit(edge.target);
    }
    ended.add(id);
  };
  for (const { id } of nodes) if (!begun.has(id)) visit(id);
  return found;
}

/** Order the nodes of each layer by the positions of their neighbours. @param {Node[][]} layers @param {Edge[]} edges */
function orderNodes(layers, edges) {
  const place = new Map();
  const notePlaces = () => layers.forEach((layer) => layer.forEach((node, index) => place.set(node.id, index / layer.length)));
  notePlaces();
  for (const isForward of [true, false, true, false]) {
    for (const layer of isForward ? layers : [...layers].reverse()) {
      const meanPlace = new Map(
        layer.map((node) => {
          const others = edges
            .filter((edge) => (isForward ? edge.target : edge.source) === node.id)
            .map((edge) => place.get(isForward ? edge.source : edge.target))
            .filter((at) => at !== undefined);
          const mean = others.reduce((sum, at) => sum + at, 0) / others.length;
          return [node.id, others.length ? mean : place.get(node.id)];
        }),
      );
      layer.sort((one, other) => meanPlace.get(one.id) - meanPlace.get(other.id));
      notePlaces();
    }
  }
}

const NEAR = 24;
const BEND = 45;

/** @typedef {{ x: number, y: number, height: number }} Box */

/** @param {Box} from @param {Box} to */
function line(from, to) {
  const span = Math.abs(to.x - from.x) / (WIDTH + LAYER_GAP);
  if (to.x <= from.x) return arc([from.x + WIDTH / 2 + NEAR, from.y + from.height], [to.x + WIDTH / 2 - NEAR, to.y + to.height], BEND * Math.max(1, span));
  const [start, end] = [middle(from), middle(to)];
  // a straight edge over several layers at the same height would cross the nodes between
  if (span > 1 && Math.abs(end - start) < NEAR) return arc([from.x + WIDTH / 2 + NEAR, from.y], [to.x + WIDTH / 2 - NEAR, to.y], -BEND * span);
  const [left, right] = [from.x + WIDTH, to.x];
  const bend = Math.max(30, (right - left) / 2);
  return { path: `M${left} ${start} C${left + bend} ${start} ${right - bend} ${end} ${right} ${end}`, x: (left + right) / 2, y: (start + end) / 2 };
}

/** @param {number[]} start @param {number[]} end @param {number} drop */
function arc(start, end, drop) {
  const far = drop < 0 ? Math.min(start[1], end[1]) + drop : Math.max(start[1], end[1]) + drop;
  const path = `M${start} C${start[0]} ${far} ${end[0]} ${far} ${end}`;
  return { path, x: (start[0] + end[0]) / 2, y: (start[1] + end[1]) / 8 + far * 0.75 };
}

/** @param {Box} box */
function middle({ y, height }) {
  return y + height / 2;
}

/** @param {{ picture: Picture, label: string }} props */
export function Picture({ picture, label }) {
  const id = useId();
  const { width, height, above, below, nodes, edges } = picture;
  const tall = above + height + below + 8;
  return html`
    <div class="picture" tabindex="0" role="region" aria-label=${label}>
      <svg width=${width + 8} height=${tall} viewBox=${`-4 ${-4 - above} ${width + 8} ${tall}`} role="group" aria-label=${label}>
        <defs>
          <marker id=${`${id}-end`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0 L8 4 L0 8 z" class="arrow" />
          </marker>
        </defs>
        ${edges.map((edge) => html`<${EdgeView} edge=${edge} marker=${`url(#${id}-end)`} />`)}
        ${nodes.map((node) => html`<${NodeView} key=${node.id} node=${node} />`)}
      </svg>
    </div>
  `;
}

/** @param {{ edge: Picture["edges"][number], marker: string }} props */
function EdgeView({ edge, marker }) {
  const drawn = html`
    <g class=${`edge ${edge.tone ?? ""}`}>
      <title>${edge.about}</title>
      <path d=${edge.path} marker-end=${marker} />
      ${edge.text && html`<text x=${edge.x} y=${edge.y - 5} text-anchor="middle">${edge.text}</text>`}
    </g>
  `;
  return edge.link ? html`<a href=${edge.link} aria-label=${edge.about}>${drawn}</a>` : drawn;
}

/** @param {{ node: Picture["nodes"][number] }} props */
function NodeView({ node }) {
  const drawn = html`
    <g class=${`node ${node.tone ?? ""}`} transform=${`translate(${node.x} ${node.y})`}>
      <title>${[node.title, ...node.lines].join(", ")}</title>
      <rect width=${WIDTH} height=${node.height} rx="6" />
      <text x=${PADDING} y=${PADDING + 12} class="title">${truncate(node.title, MAX_TITLE_LENGTH)}</text>
      ${node.lines.map((text, index) => html`<text x=${PADDING} y=${PADDING + 12 + LINE_HEIGHT * (index + 1)}>${truncate(text)}</text>`)}
    </g>
  `;
  return node.link ? html`<a href=${node.link} aria-label=${[node.title, ...node.lines].join(", ")}>${drawn}</a>` : drawn;
}

const MAX_TEXT_LENGTH = 26;
const MAX_TITLE_LENGTH = 22;

/** @param {string} text @param {number} [maxLength] */
function truncate(text, maxLength = MAX_TEXT_LENGTH) {
  return text.length > maxLength ? `${text.slice(0, maxLength - 1)}\u2026` : text;
}
