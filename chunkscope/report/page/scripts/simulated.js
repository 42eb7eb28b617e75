/* The trade-off between settings, and the first steps of one. */

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
              `${p.setting}${p.named ? ` (${p.details})` : ""}\n${data.tradeoff.axes.x}: ${seconds(p.x)}\n${data.tradeoff.axes.y}: ${seconds(p.y)}`,
          }),
        ),
      ],
      r: { type: "identity" },
    }),
  );
}

/* A latency against the rate of arrivals: a line for each setting, its points hollow once the queue
   grows. */
function ratesChart(key, limit, words) {
  const { points, limits, settings } = data.rates;
  const found = points.filter((p) => p[key] > 0);
  const look = (setting) => LOOKS[settings.indexOf(setting) % LOOKS.length];
  return (width) => {
    const values = [...found.map((p) => p[key]), ...(limits[limit] ? [limits[limit]] : [])];
    const ticks = logTicks(Math.min(...values), Math.max(...values), 500);
    const place = { x: "rate_per_s", y: key };
    const chart = Plot.plot(
      base(width, {
        height: 300,
        marginLeft: 60,
        marginRight: 20,
        marginTop: 24,
        marginBottom: 40,
        ariaLabel: `${words} against requests per second`,
        x: { type: "linear", zero: true, nice: true },
        y: { type: "log", inset: 8 },
        marks: [
          Plot.axisX({ label: "requests per second", labelAnchor: "center", labelArrow: "none", tickSize: 0 }),
          Plot.axisY({ label: words, labelArrow: "none", ticks, tickSize: 0, tickFormat: secondsTick }),
          Plot.gridX({ stroke: LINE, strokeOpacity: 1 }),
          Plot.gridY({ stroke: LINE, strokeOpacity: 1, ticks }),
          ...(limits[limit] ? [Plot.ruleY([limits[limit]], { stroke: BAD, strokeDasharray: "5,4" })] : []),
          ...settings.map((setting) =>
            Plot.line(
              found.filter((p) => p.setting === setting),
              { ...place, ...look(setting), strokeLinejoin: "round" },
            ),
          ),
          Plot.dot(found, {
            ...place,
            r: 3,
            fill: (p) => (p.grows ? "var(--card)" : look(p.setting).stroke),
            stroke: (p) => look(p.setting).stroke,
          }),
          Plot.tip(
            found,
            Plot.pointer({
              ...place,
              title: (p) =>
                `${p.setting} at ${+p.rate_per_s.toPrecision(3)}/s\n${words}: ${seconds(p[key])}${p.grows ? "\nthe queue grows" : ""}`,
            }),
          ),
        ],
      }),
    );
    return [legend(settings.map((setting) => [setting, look(setting).stroke])), chart];
  };
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
            tickFormat: shortTick,
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

CHARTS.rates = (place) => {
  draw(place, ratesChart("ttft_p95_s", "ttft_p95", "p95 time to first token"), "rates-ttft");
  draw(place, ratesChart("itl_p99_s", "itl_p99", "p99 gap between tokens"), "rates-gap");
};
CHARTS.tradeoff = (place) => draw(place, tradeoff, "tradeoff");
CHARTS.timeline = (place) => draw(place, timeline, "timeline");
