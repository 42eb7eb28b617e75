/* What an engine did by its log: rates, requests and KV cache over time, under what held it back. */

const BOUNDS = {
  idle: "var(--line)",
  "client-bound": "var(--c1)",
  "queue-bound": "var(--c5)",
  max_num_seqs: "var(--c3)",
  "KV-bound": "var(--c4)",
};
const clock = (s) => {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const part = Number.isInteger(s) ? "" : (s % 1).toFixed(1).slice(1);
  const hours = s < 3600 ? Math.floor(s / 60) : `${Math.floor(s / 3600)}:${two((s % 3600) / 60)}`;
  return `${hours}:${two(s % 60)}${part}`;
};

const timeAxis = (width) =>
  Plot.axisX({
    label: "time since the log's first line",
    labelAnchor: "center",
    labelArrow: "none",
    ticks: width < 500 ? 4 : 8,
    tickFormat: clock,
    tickSize: 0,
  });

function panel(width, windows, { label, lines, most, tick, last }) {
  const series = lines.map(([name, at, stroke, dash]) => ({
    name,
    stroke,
    dash,
    // A window is as wide as it lasted: its value holds from its begin to its end.
    points: windows.flatMap((w) => [
      { engine: w[0], x: w[1], y: w[at] },
      { engine: w[0], x: w[2], y: w[at] },
    ]),
  }));
  const top = most ?? 1.1 * Math.max(1, ...series.flatMap(({ points }) => points.map((p) => p.y)));
  const told = (w) =>
    [`${clock(w[1])} to ${clock(w[2])}`, ...lines.map(([name, at]) => `${name}: ${tick(w[at])}`)].join("\n");
  return Plot.plot(
    base(width, {
      height: last ? 142 : 114,
      marginTop: 18,
      marginLeft: 56,
      marginRight: 12,
      marginBottom: last ? 40 : 12,
      ariaLabel: `${label} over time`,
      x: { domain: [Math.min(...windows.map((w) => w[1])), Math.max(...windows.map((w) => w[2]))], axis: null },
      y: { domain: [0, top] },
      marks: [
        ...(last ? [timeAxis(width)] : []),
        Plot.axisY({ label: null, ticks: 3, tickFormat: tick, tickSize: 0 }),
        Plot.gridY({ ticks: 3, stroke: LINE, strokeOpacity: 1 }),
        ...series.map(({ points, stroke, dash }) =>
          Plot.line(points, { x: "x", y: "y", z: "engine", stroke, strokeDasharray: dash, strokeWidth: 1.8 }),
        ),
        Plot.ruleY([0], { stroke: FAINT }),
        Plot.text([label], { frameAnchor: "top-left", dx: 4, dy: -13, fill: INK }),
        Plot.tip(windows, Plot.pointerX({ x: (w) => (w[1] + w[2]) / 2, y: top / 2, title: told })),
      ],
    }),
  );
}

function engineTimeline({ windows, phases }) {
  const found = Object.keys(BOUNDS).filter((bound) => phases.some((p) => p[2] === bound));
  return (width) => {
    const ends = [Math.min(...windows.map((w) => w[1])), Math.max(...windows.map((w) => w[2]))];
    const strip = Plot.plot(
      base(width, {
        height: 22,
        marginTop: 4,
        marginLeft: 56,
        marginRight: 12,
        marginBottom: 4,
        ariaLabel: "what held the engine back over time",
        x: { domain: ends, axis: null },
        y: { axis: null, domain: [0, 1] },
        marks: [Plot.rect(phases, { x1: (p) => p[0], x2: (p) => p[1], y1: 0, y2: 1, fill: (p) => BOUNDS[p[2]] })],
      }),
    );
    const rates = [
      ["prompt tokens/s", 3, "var(--c1)"],
      ["output tokens/s", 4, "var(--c2)", "6,3"],
    ];
    const requests = [
      ["running", 5, "var(--c7)"],
      ["waiting", 6, "var(--c4)", "6,3"],
    ];
    const share = (part) => `${Math.round(100 * part)} %`;
    return [
      legend(found.map((bound) => [bound, BOUNDS[bound]])),
      strip,
      legend([...rates, ...requests].map(([name, , colour]) => [name, colour])),
      panel(width, windows, { label: "tokens a second", lines: rates, tick: shortTick }),
      panel(width, windows, { label: "requests", lines: requests, tick: shortTick }),
      panel(width, windows, { label: "KV cache", lines: [["KV cache", 7, "var(--c5)"]], most: 1, tick: share, last: true }),
    ];
  };
}

CHARTS.engine = (place, name) => draw(place, engineTimeline(data[name]), name);
