/* The copy button, the light switch, and the points of a picture. */
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);

  async function copy(place) {
    try {
      await navigator.clipboard.writeText(place.textContent);
      return true;
    } catch {
      // No clipboard for this page: select the text, and copy the way browsers always could.
      getSelection().selectAllChildren(place);
      return document.execCommand("copy");
    }
  }

  byId("copy")?.addEventListener("click", async () => {
    const done = await copy(byId("arguments"));
    byId("copied").textContent = done ? "copied" : "select it and press Ctrl-C";
    setTimeout(() => {
      byId("copied").textContent = "";
    }, 3000);
  });

  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // A point that is clicked, or entered by keyboard, says below the picture what it is.
  function choose(point) {
    const figure = point.closest("figure");
    for (const other of figure.querySelectorAll(".point")) {
      other.classList.toggle("picked", other === point);
    }
    figure.querySelector(".chosen").textContent = point.getAttribute("aria-label");
  }
  for (const point of document.querySelectorAll(".point")) {
    point.addEventListener("click", () => choose(point));
    point.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(point);
      }
    });
  }
  document.documentElement.dataset.ready = "yes";
})();
