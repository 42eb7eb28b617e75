/* What an engine did: how the times are spread, a curve for each setting. */

/* A log axis has no place for nothing. */
const spansDecades = (values, ratio) =>
  Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > ratio;

/* 1, 2, 5, 10 ...; fewer of them where there is no room for so many. */
function logTicks(low, high, room) {
  for (const steps of [[1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
      ticks.push(...steps.map((step) => step * 10 ** power).filter((tick) => tick >= low && tick <= high));
    }
    if (ticks.length * 62 <= room) return ticks;
  }
  return 3;
}

CHARTS.measured = (place) => {
  const grid = element("div", "", "grid");
  place.append(grid);
  for (const [figure, title] of [
    ["ttft_s", "Time to first token"],
    ["itl_s", "Gap between tokens"],
  ]) {
    if (!data.measured.curves[figure]) continue;
    const holder = element("div");
    holder.append(element("h3", title));
    grid.append(holder);
    draw(holder, curves(figure, title.toLowerCase()), `${figure}-curve`);
  }
};
