// The chosen theme, before anything is drawn. It is no module, because modules run too late for that.
"use strict";

{
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // a browser that keeps nothing
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
