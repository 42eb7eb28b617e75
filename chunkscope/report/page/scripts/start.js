/* With everything above in place: draw. */

theming();
copying();
if (byId("datasets")) {
  sortable(byId("datasets"));
  filterable(byId("datasets"));
}
lengths();
reuse();
memory();
measured();
simulated();
engines();
for (const place of drawn.keys()) watcher.observe(place);
document.documentElement.dataset.ready = "yes";
