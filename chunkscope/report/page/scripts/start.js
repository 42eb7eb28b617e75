/* With everything above in place: draw. */

theming();
copying();
for (const place of document.querySelectorAll("[data-chart]")) {
  const name = place.dataset.chart;
  CHARTS[name.replace(/-\d+$/, "")](place, name);
}
// A chart in folded details has no width until it is opened.
for (const folded of document.querySelectorAll("details")) {
  folded.addEventListener("toggle", () => folded.querySelectorAll("figure.chart").forEach(redraw));
}
for (const place of drawn.keys()) watcher.observe(place);
document.documentElement.dataset.ready = "yes";
