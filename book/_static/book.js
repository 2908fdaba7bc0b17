// What the book adds to the theme's behaviour.

// A search result could show the words around what was found. They'd have their formulas as source text, and a
// browser refuses to fetch them for pages opened as files: the titles must do.
DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// Formulas in a line that are wider than the screen scroll, like displayed ones; and whatever scrolls can be
// reached, and so scrolled, with the keyboard.
function fit() {
  for (const formula of document.querySelectorAll(".bd-article span.math")) {
    const math = formula.querySelector("mjx-math");
    const room = formula.closest("p, li, dd, dt, td, th, figcaption, div");
    if (math) formula.classList.toggle("wide", math.offsetWidth > room.clientWidth && !formula.closest("table"));
  }
  for (const box of document.querySelectorAll(".bd-article :is(pre, table, .wide, div.math, mjx-container[display])")) {
    if (box.scrollWidth > box.clientWidth + 1 && box.clientWidth) box.tabIndex = 0;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  // The button shows more than its label says, the keys; without the label what's shown is its name.
  document.querySelector(".search-button-field")?.removeAttribute("aria-label");
  // A notebook is saved, not shown. Pages opened as files can't do that: the browser shows its text, to be saved by hand.
  for (const link of document.querySelectorAll('.dropdown-download-buttons a[href*="/_sources/"]')) {
    link.download = link.pathname.split("/").pop();
    link.removeAttribute("target");
    if (location.protocol === "file:") link.querySelector(".btn__text-container").textContent += " (opens: save it)";
  }
  (window.MathJax?.startup?.promise || Promise.resolve()).then(fit);
  window.addEventListener("resize", fit);
  document.addEventListener("toggle", fit, true);
  document.addEventListener("click", () => requestAnimationFrame(fit));
});
