/* What an engine did: quantiles of the times, bars of the rest; a colour for each setting. */

const colour = (d) => lookOf(d.setting).stroke;

const GROUPS = { all: "all prompts", short: "short prompts", long: "long prompts" };

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

function latency(figure) {
  const rows = data.measured.latency.filter((row) => row.figure === figure);
  return (width) => {
    if (!rows.length) return element("p", "not measured", "none");
    const values = rows.flatMap((row) => [row.p50, row.max, ...row.spread.map((s) => s.min)]);
    const log = spansDecades(values, 30);
    const groups = Object.keys(GROUPS).filter((group) => rows.some((row) => row.group === group));
    const settings = data.measured.settings.filter((name) => rows.some((row) => row.setting === name));
    const room = width < 440 ? 15 : 28;
    const longest = Math.min(room, Math.max(...settings.map((name) => name.length)));
    const left = longest * 7 + 22;
    const ticks = log
      ? logTicks(Math.min(...values), Math.max(...values), width - left)
      : width < 420
        ? 4
        : 6;
    const points = rows.flatMap((row) =>
      ["p50", "p95", "p99", "max"].map((at) => ({ ...row, at, value: row[at], group: GROUPS[row.group] })),
    );
    const spread = rows.flatMap((row) =>
      row.spread.map((s) => ({ ...s, setting: row.setting, group: GROUPS[row.group] })),
    );
    const named = rows.map((row) => ({ ...row, group: GROUPS[row.group] }));
    const place = { y: "setting", fy: "group" };
    const say = (d) => `${d.setting}, ${d.group}\n${d.at === "max" ? "longest" : d.at}: ${seconds(d.value)}`;
    return Plot.plot(
      base(width, {
        height: groups.length * (settings.length * 22 + 26) + 40,
        marginLeft: left,
        marginRight: 14,
        marginTop: 22,
        marginBottom: 36,
        ariaLabel: figure === "ttft_s" ? "time to first token by setting" : "gap between tokens by setting",
        x: log ? { type: "log" } : { zero: true, nice: true },
        y: { type: "band", domain: settings, label: null, padding: 0.5 },
        fy: { domain: groups.map((group) => GROUPS[group]), label: null, padding: 0.22, axis: null },
        marks: [
          Plot.axisX({
            label: log ? "log axis" : "seconds",
            labelArrow: "none",
            labelAnchor: "center",
            ticks,
            tickFormat: log ? seconds : undefined,
            tickSize: 0,
            anchor: "bottom",
          }),
          Plot.axisY({ tickSize: 0, tickFormat: (name) => squeeze(name, room) }),
          Plot.gridX({ stroke: LINE, strokeOpacity: 1, ticks }),
          Plot.text(
            groups.map((group) => GROUPS[group]),
            {
              fy: (d) => d,
              text: (d) => d,
              frameAnchor: "top-left",
              dy: -14,
              fill: "var(--soft)",
              fontWeight: 600,
            },
          ),
          Plot.ruleY(named, {
            ...place,
            x1: "p50",
            x2: "max",
            stroke: colour,
            strokeWidth: 1.5,
            strokeOpacity: 0.6,
          }),
          Plot.ruleY(spread, {
            ...place,
            x1: "min",
            x2: "max",
            stroke: colour,
            strokeWidth: 10,
            strokeOpacity: 0.25,
            strokeLinecap: "round",
          }),
          Plot.dot(
            points.filter((p) => p.at === "p50"),
            { ...place, x: "value", r: 5, fill: colour },
          ),
          Plot.dot(
            points.filter((p) => p.at === "p95" || p.at === "p99"),
            {
              ...place,
              x: "value",
              r: (p) => (p.at === "p95" ? 3.6 : 2.6),
              fill: "var(--card)",
              stroke: colour,
              strokeWidth: 1.6,
            },
          ),
          Plot.tickX(
            points.filter((p) => p.at === "max"),
            { ...place, x: "value", stroke: colour, strokeWidth: 2.5 },
          ),
          Plot.tip(points, Plot.pointer({ ...place, x: "value", title: say })),
        ],
        r: { type: "identity" },
      }),
    );
  };
}

function barChart(width, rows) {
  const room = width < 440 ? 15 : 28;
  const longest = Math.min(room, Math.max(...rows.map((row) => row.setting.length)));
  const known = rows.filter((row) => row.value !== null);
  return Plot.plot(
    base(width, {
      height: rows.length * 26 + 34,
      marginLeft: longest * 7 + 22,
      marginRight: 76,
      marginBottom: 22,
      ariaLabel: rows[0].title,
      x: { zero: true, label: null },
      y: { domain: rows.map((row) => row.setting), label: null, padding: 0.35 },
      marks: [
        Plot.axisX({
          label: null,
          ticks: width < 500 ? 2 : 4,
          tickFormat: shortTick,
          tickSize: 0,
        }),
        Plot.axisY({ tickSize: 0, tickFormat: (name) => squeeze(name, room) }),
        Plot.gridX({ stroke: LINE, strokeOpacity: 1, ticks: width < 500 ? 2 : 4 }),
        Plot.barX(known, { x: "value", y: "setting", fill: colour, rx2: 3 }),
        Plot.ruleY(
          known.filter((row) => row.min !== null),
          { y: "setting", x1: "min", x2: "max", stroke: INK, strokeWidth: 2 },
        ),
        Plot.text(known, {
          x: (row) => Math.max(row.value, row.max || 0),
          y: "setting",
          text: "shown",
          textAnchor: "start",
          dx: 6,
          fill: "var(--soft)",
        }),
        Plot.text(
          rows.filter((row) => row.value === null),
          {
            x: () => 0,
            y: "setting",
            text: "shown",
            textAnchor: "start",
            dx: 6,
            fill: (row) => (row.ok ? FAINT : BAD),
            fontWeight: 600,
          },
        ),
        Plot.ruleX([0], { stroke: FAINT }),
      ],
    }),
  );
}

CHARTS.measured = (place) => {
  const grid = element("div", "", "grid");
  place.append(grid);
  for (const [figure, title] of [
    ["ttft_s", "Time to first token"],
    ["itl_s", "Gap between tokens"],
  ]) {
    const holder = element("div");
    holder.append(element("h3", title));
    grid.append(holder);
    if (data.measured.curves[figure]) draw(holder, curves(figure, title.toLowerCase()), `${figure}-curve`);
    draw(holder, latency(figure), figure);
  }
  for (const figure of new Set(data.measured.bars.map((bar) => bar.figure))) {
    const rows = data.measured.bars.filter((bar) => bar.figure === figure);
    if (rows.every((row) => row.value === null)) continue;
    const holder = element("div");
    holder.append(element("h3", `${rows[0].title} (${rows[0].better} is better)`));
    grid.append(holder);
    draw(holder, (width) => barChart(width, rows), `bar-${figure}`);
  }
};
