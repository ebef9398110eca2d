// The library of components: markup as tagged templates, state as hooks.

import * as preact from "../vendor/preact.js";
import * as hooks from "../vendor/preact-hooks.js";
import htm from "../vendor/htm.js";

/** Create markup from a template. Interpolated values are text, never markup. */
export const html = htm.bind(preact.h);

/** @typedef {(() => void) | void} Cleanup  called at the end of an effect */

/** An error boundary: shows its children, or `instead` of the error if they cannot be drawn. */
export class Guard extends /** @type {any} */ (preact.Component) {
  /** @param {unknown} error */
  static getDerivedStateFromError(error) {
    return { error };
  }

  render() {
    return this.state.error ? this.props.instead(this.state.error) : this.props.children;
  }
}

/** @type {(vnode: any, place: Element) => void} */
export const render = preact.render;
/** @type {<T extends Function>(call: T, dependencies: any[]) => T} */
export const useCallback = hooks.useCallback;
/** @type {(effect: () => Cleanup, dependencies?: any[]) => void} */
export const useEffect = hooks.useEffect;
/** @type {(effect: () => Cleanup, dependencies?: any[]) => void} */
export const useLayoutEffect = hooks.useLayoutEffect;
/** @type {() => string} */
export const useId = hooks.useId;
/** @type {<T>(make: () => T, dependencies: any[]) => T} */
export const useMemo = hooks.useMemo;
/** @type {<T>(first: T) => { current: T }} */
export const useRef = hooks.useRef;
/** @type {<T>(first: T | (() => T)) => [T, (next: T | ((before: T) => T)) => void]} */
export const useState = hooks.useState;
