// Observes the size of an element; calls back once before the next frame, not while the browser measures.

/**
 * @param {Element} element
 * @param {() => void} callback
 * @returns {() => void} stops watching
 */
export function onResize(element, callback) {
  let frame = 0;
  const observer = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(callback);
  });
  observer.observe(element);
  return () => {
    observer.disconnect();
    cancelAnimationFrame(frame);
  };
}
