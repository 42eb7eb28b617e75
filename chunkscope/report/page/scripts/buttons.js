/* The copy button and the light switch. */

function copying() {
  const button = byId("copy"),
    told = byId("copied");
  button?.addEventListener("click", async () => {
    const done = await copy(byId("arguments"));
    told.textContent = done ? "copied" : "select it and press Ctrl-C";
    setTimeout(() => {
      told.textContent = "";
    }, 3000);
  });
}

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

function theming() {
  const root = document.documentElement;
  byId("theme").addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
}
