/* The trade-off between settings, and the first steps of one. */

function tradeoff(width) {
  const points = data.tradeoff;
  const bare = tradeoffPlot(width, points, []);
  return tradeoffPlot(width, points, readable(points, bare.scale("x"), bare.scale("y"), width));
}

/* Names that do not cover one another: the knee's first, then from the ends inwards. */
function readable(points, x, y, width) {
  const order = [...points].sort((a, b) => b.knee - a.knee || Math.abs(b.gap) - Math.abs(a.gap));
  const kept = [];
  for (const point of order) {
    const across = x.apply(point.makespan_s),
      wide = cut(point.setting, 24).length * 6.5 + 14;
    const left = across > width * 0.7;
    const at = {
      from: left ? across - wide : across,
      to: left ? across : across + wide,
      y: y.apply(point.gap),
    };
    const free = kept.every((k) => Math.abs(k.y - at.y) > 14 || k.to < at.from || at.to < k.from);
    if (free) kept.push({ ...at, point: { ...point, left } });
  }
  return kept.map((k) => k.point);
}

function tradeoffPlot(width, points, named) {
  const best = points.filter((p) => p.best).sort((a, b) => a.makespan_s - b.makespan_s);
  const place = { x: "makespan_s", y: "gap" };
  const gaps = points.map((p) => p.gap);
  const log = spansDecades(gaps, 20);
  const ticks = log ? logTicks(Math.min(...gaps), Math.max(...gaps), 500) : 5;
  return Plot.plot(
    base(width, {
      height: 340,
      marginLeft: 60,
      marginRight: 20,
      marginTop: 24,
      marginBottom: 40,
      ariaLabel: "makespan against the longest gap between tokens",
      x: {
        type: spansDecades(
          points.map((p) => p.makespan_s),
          20,
        )
          ? "log"
          : "linear",
        inset: 12,
      },
      y: { type: log ? "log" : "linear", inset: 12 },
      marks: [
        Plot.axisX({
          label: "seconds until all are done",
          labelAnchor: "center",
          labelArrow: "none",
          ticks: width < 500 ? 4 : 6,
          tickSize: 0,
          tickFormat: (n) => short.format(n),
        }),
        Plot.axisY({
          label: "longest gap between tokens",
          labelArrow: "none",
          ticks,
          tickSize: 0,
          tickFormat: seconds,
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
            title: (p) => `${p.setting}\nall done in ${seconds(p.makespan_s)}\nlongest gap ${seconds(p.gap)}`,
          }),
        ),
      ],
      r: { type: "identity" },
    }),
  );
}

const PROMPT_COLOURS = ["var(--c2)", "var(--c3)", "var(--c5)", "var(--c7)", "var(--c6)"];

function timeline(width) {
  const sums = new Map();
  for (const { kind, tokens } of data.timeline) {
    if (kind.startsWith("prompt ")) sums.set(kind, (sums.get(kind) || 0) + tokens);
  }
  // A colour for the longest of those that are read in chunks; the others share one.
  const prompts = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  const named = prompts.slice(0, PROMPT_COLOURS.length);
  const rest = "chunks of other prompts";
  const kinds = ["decodes", "whole prompts", ...named, ...(named.length < prompts.length ? [rest] : [])];
  const other = "color-mix(in srgb, var(--c1) 30%, var(--card))";
  const colours = ["var(--faint)", "var(--c1)", ...PROMPT_COLOURS.slice(0, named.length), other];
  const kindOf = (piece) => (kinds.includes(piece.kind) ? piece.kind : rest);
  const stacked = Plot.stackY(
    { order: kinds },
    { x1: "start_s", x2: "end_s", y: "tokens", z: kindOf, fill: (p) => colours[kinds.indexOf(kindOf(p))] },
  );
  return [
    legend(kinds.map((kind, i) => [kind.startsWith("prompt ") ? `chunks of ${kind}` : kind, colours[i]])),
    Plot.plot(
      base(width, {
        height: 240,
        marginLeft: 52,
        marginTop: 22,
        marginBottom: 40,
        ariaLabel: "tokens in each of the first steps",
        marks: [
          Plot.axisX({
            label: "seconds",
            labelAnchor: "center",
            labelArrow: "none",
            ticks: width < 500 ? 4 : 8,
            tickSize: 0,
          }),
          Plot.axisY({
            label: "tokens in the step",
            labelArrow: "none",
            ticks: 4,
            tickSize: 0,
            tickFormat: (n) => short.format(n),
          }),
          Plot.gridY({ stroke: LINE, strokeOpacity: 1, ticks: 4 }),
          Plot.rectY(data.timeline, { ...stacked, insetLeft: 0.5, insetRight: 0.5 }),
          Plot.ruleY([0], { stroke: FAINT }),
          Plot.tip(
            data.timeline,
            Plot.pointer(
              Plot.stackY(
                { order: kinds },
                {
                  x: (p) => (p.start_s + p.end_s) / 2,
                  y: "tokens",
                  z: kindOf,
                  title: (p) =>
                    `step ${p.step}: ${seconds(p.end_s - p.start_s)}\n${p.kind}: ${whole.format(p.tokens)} tokens`,
                },
              ),
            ),
          ),
        ],
      }),
    ),
  ];
}

function simulated() {
  if (data.tradeoff.length) draw("tradeoff", tradeoff);
  if (data.timeline.length) draw("timeline", timeline);
}
