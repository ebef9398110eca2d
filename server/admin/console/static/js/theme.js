// Applies the chosen theme before anything is drawn. It is not a module, because modules run too late.
"use strict";

{
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // a browser without storage
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
