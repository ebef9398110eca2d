// What happens when an element has another size: once before the next frame, not while the browser measures.

/**
 * @param {Element} element
 * @param {() => void} act
 * @returns {() => void} stops watching
 */
export function onResize(element, act) {
  let frame = 0;
  const observer = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(act);
  });
  observer.observe(element);
  return () => {
    observer.disconnect();
    cancelAnimationFrame(frame);
  };
}
