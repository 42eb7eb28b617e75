/* The trade-off between settings. */

function tradeoff(width) {
  const points = data.tradeoff.points;
  const bare = tradeoffPlot(width, points, []);
  return tradeoffPlot(width, points, readable(points, bare.scale("x"), bare.scale("y"), width));
}

/* Names that do not cover one another: the plan's first, the knee's, then from the ends inwards. */
function readable(points, x, y, width) {
  const order = [...points].sort(
    (a, b) => b.named - a.named || b.knee - a.knee || Math.abs(b.y) - Math.abs(a.y),
  );
  const kept = [];
  for (const point of order) {
    const across = x.apply(point.x),
      wide = cut(point.setting, 24).length * 6.5 + 14;
    const left = across > width * 0.7 || across + wide > width;
    const at = {
      from: left ? across - wide : across,
      to: left ? across : across + wide,
      y: y.apply(point.y),
    };
    const free = kept.every((k) => Math.abs(k.y - at.y) > 14 || k.to < at.from || at.to < k.from);
    if (free) kept.push({ ...at, point: { ...point, left } });
  }
  return kept.map((k) => k.point);
}

function tradeoffPlot(width, points, named) {
  const best = points.filter((p) => p.best).sort((a, b) => a.x - b.x);
  const place = { x: "x", y: "y" };
  const gaps = points.map((p) => p.y);
  const log = spansDecades(gaps, 20);
  const ticks = log ? logTicks(Math.min(...gaps), Math.max(...gaps), 500) : 5;
  return Plot.plot(
    base(width, {
      height: 340,
      marginLeft: 60,
      marginRight: 20,
      marginTop: 24,
      marginBottom: 40,
      ariaLabel: `${data.tradeoff.axes.x} against ${data.tradeoff.axes.y}`,
      x: {
        type: spansDecades(
          points.map((p) => p.x),
          20,
        )
          ? "log"
          : "linear",
        inset: 12,
      },
      y: { type: log ? "log" : "linear", inset: 12 },
      marks: [
        Plot.axisX({
          label: `${data.tradeoff.axes.x}, seconds`,
          labelAnchor: "center",
          labelArrow: "none",
          ticks: width < 500 ? 4 : 6,
          tickSize: 0,
          tickFormat: shortTick,
        }),
        Plot.axisY({
          label: data.tradeoff.axes.y,
          labelArrow: "none",
          ticks,
          tickSize: 0,
          tickFormat: secondsTick,
        }),
        Plot.gridX({ stroke: LINE, strokeOpacity: 1, ticks: width < 500 ? 4 : 6 }),
        Plot.gridY({ stroke: LINE, strokeOpacity: 1, ticks }),
        Plot.lineY(best, { ...place, stroke: "var(--c1)", strokeOpacity: 0.5, strokeWidth: 1.5 }),
        Plot.dot(points, {
          ...place,
          r: 5,
          fill: (p) => (p.best ? "var(--c1)" : "var(--card)"),
          stroke: "var(--c1)",
          strokeWidth: 1.6,
        }),
        Plot.dot(
          points.filter((p) => p.named),
          { ...place, r: 7, symbol: "diamond2", fill: "var(--c2)", stroke: "var(--card)", strokeWidth: 1.5 },
        ),
        Plot.dot(
          points.filter((p) => p.knee),
          { ...place, r: 9, stroke: "var(--c2)", strokeWidth: 2 },
        ),
        ...[true, false].map((left) =>
          Plot.text(
            named.filter((p) => p.left === left),
            {
              ...place,
              text: (p) => cut(p.setting, 24),
              textAnchor: left ? "end" : "start",
              dx: left ? -12 : 12,
              fill: "var(--soft)",
              stroke: "var(--card)",
              strokeWidth: 4,
            },
          ),
        ),
        Plot.tip(
          points,
          Plot.pointer({
            ...place,
            title: (p) =>
              `${p.setting}\n${data.tradeoff.axes.x}: ${seconds(p.x)}\n${data.tradeoff.axes.y}: ${seconds(p.y)}`,
          }),
        ),
      ],
      r: { type: "identity" },
    }),
  );
}

CHARTS.tradeoff = (place) => draw(place, tradeoff, "tradeoff");
