/* A table that sorts and filters. */

function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => {
      const numeric = head.dataset.kind === "number";
      const before = head.getAttribute("aria-sort");
      const down = before === "none" ? numeric : before === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort(byColumn(column, numeric, down)));
    }),
  );
}

function byColumn(column, numeric, down) {
  const text = (row) => row.cells[column].textContent.trim().toLowerCase();
  const figure = (row) => text(row).replace(/[^\d.]/g, "");
  return (a, b) => {
    const [left, right] = numeric ? [figure(a), figure(b)] : [text(a), text(b)];
    // What is not known comes last, whichever way.
    if (left === "" || right === "") return (left === "") - (right === "");
    const order = numeric ? Number(left) - Number(right) : left.localeCompare(right);
    return down ? -order : order;
  };
}

function filterable(box) {
  const controls = box.closest(".controls"),
    told = controls.querySelector(".matching"),
    rows = [...controls.nextElementSibling.querySelector("table").tBodies[0].rows];
  box.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    rows.forEach((row) => {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    const left = rows.filter((row) => !row.hidden).length;
    told.textContent = wanted ? `${left} of ${rows.length}` : "";
  });
}
