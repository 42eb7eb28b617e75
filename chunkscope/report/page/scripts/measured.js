/* How times are spread: a cumulative curve per setting. The slowest tenth is drawn large. */

const STRETCHED = 90;
// Settings that tie lie on each other: a broad line shows below a thin one, and through dashes.
const LOOKS = [
  { stroke: "var(--c1)", strokeWidth: 4.5, strokeOpacity: 0.55 },
  { stroke: "var(--c2)", strokeWidth: 1.8 },
  { stroke: "var(--c7)", strokeWidth: 1.8, strokeDasharray: "7,3" },
  { stroke: "var(--c5)", strokeWidth: 2, strokeDasharray: "2,3" },
  { stroke: "var(--c3)", strokeWidth: 1.8, strokeDasharray: "9,3,2,3" },
  { stroke: "var(--c6)", strokeWidth: 1.8 },
  { stroke: "var(--c4)", strokeWidth: 1.8, strokeDasharray: "7,3" },
];
const lookOf = (setting) => LOOKS[data.measured.findIndex((run) => run.setting === setting) % LOOKS.length];
/* The settings that have such a time, each with its points: percentile, seconds. */
const spreadsOf = (figure) =>
  data.measured
    .filter((run) => run[figure].length > 1)
    .map((run) => ({ setting: run.setting, at: run[figure].map((s, at, all) => [(100 * at) / (all.length - 1), s]) }));

function curvePoints(spreads) {
  const values = spreads.flatMap((spread) => spread.at.map(([, value]) => value));
  // A log axis has no place for nothing: what a clock could not tell from it stands at the edge.
  const least = Math.max(...values) / 1e5;
  return spreads.flatMap(({ setting, at }) =>
    at.map(([percent, value]) => ({ setting, percent, value, x: Math.max(value, least) })),
  );
}

function curves(figure, words) {
  const spreads = spreadsOf(figure);
  const points = curvePoints(spreads);
  const log = Math.max(...points.map((p) => p.value)) > 0;
  const at = (percent) =>
    points.filter((p) => p.percent === percent).map((p) => `${p.setting}: ${seconds(p.value)}`);
  return (width) => {
    const height = 330,
      top = 12,
      bottom = 40,
      left = 46;
    const middle = top + (height - top - bottom) * 0.5;
    const ends = [Math.min(...points.map((p) => p.x)), Math.max(...points.map((p) => p.x))];
    const ticks = log ? logTicks(...ends, width - left) : 4;
    const place = { x: "x", y: "percent" };
    const chart = Plot.plot(
      base(width, {
        height,
        marginTop: top,
        marginLeft: left,
        marginRight: 16,
        marginBottom: bottom,
        ariaLabel: `${words} by setting: share that takes at most so long`,
        x: { type: log ? "log" : "linear", domain: log ? [ends[0] * 0.95, ends[1] * 1.05] : [0, 1] },
        y: { type: "linear", domain: [0, STRETCHED, 100], range: [height - bottom, middle, top] },
        marks: [
          Plot.axisX({
            label: words,
            labelAnchor: "center",
            labelArrow: "none",
            ticks,
            tickFormat: secondsTick,
            tickSize: 0,
          }),
          Plot.axisY({ label: null, ticks: [0, 50, 90, 95, 99, 100], tickFormat: (p) => `${p} %`, tickSize: 0 }),
          Plot.gridX({ stroke: LINE, strokeOpacity: 1, ticks }),
          Plot.gridY({ stroke: LINE, strokeOpacity: 1, ticks: [50, 95, 99, 100] }),
          Plot.ruleY([STRETCHED], { stroke: FAINT, strokeDasharray: "3,3" }),
          ...spreads.map(({ setting }) =>
            Plot.line(
              points.filter((p) => p.setting === setting),
              { ...place, ...lookOf(setting), strokeLinejoin: "round" },
            ),
          ),
          Plot.text(["the slowest tenth, drawn larger"], {
            frameAnchor: "left",
            x: null,
            y: () => STRETCHED,
            dx: 4,
            dy: -9,
            textAnchor: "start",
            fill: FAINT,
            stroke: "var(--card)",
            strokeWidth: 4,
          }),
          Plot.dot(points, Plot.pointer({ ...place, r: 4.5, fill: (p) => lookOf(p.setting).stroke })),
          Plot.tip(
            points,
            Plot.pointer({ ...place, title: (p) => [`p${+p.percent.toFixed(1)}`, ...at(p.percent)].join("\n") }),
          ),
        ],
        r: { type: "identity" },
      }),
    );
    return [legend(spreads.map(({ setting }) => [setting, lookOf(setting).stroke])), chart];
  };
}

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
    if (!spreadsOf(figure).length) continue;
    const holder = element("div");
    holder.append(element("h3", title));
    grid.append(holder);
    draw(holder, curves(figure, title.toLowerCase()), `${figure}-curve`);
  }
};
