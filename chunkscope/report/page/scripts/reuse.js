/* What is found by the size of the KV cache, of one dataset or all: a line per order of sending. */

const ORDER_LOOKS = [
  { stroke: "var(--c1)", strokeWidth: 4, strokeOpacity: 0.6 },
  { stroke: "var(--c7)", strokeWidth: 2, strokeDasharray: "2,3" },
  { stroke: "var(--c2)", strokeWidth: 2 },
];
let reused = 0;

const kvTokens = (tokens) =>
  tokens >= 1 << 20 ? `${+(tokens / (1 << 20)).toFixed(1)}M` : `${+(tokens / 1024).toFixed(1)}K`;
/* As everywhere: a little is never shown as nothing. */
const percent = (part) =>
  part > 0 && part < 0.001 ? "<0.1 %" : `${+(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`;

function reuseCurve(width) {
  const { sets, plan } = data.reuse;
  const set = sets[reused];
  const marked = plan && reused === 0 ? [plan] : [];
  const orders = Object.keys(set.lines);
  const points = orders.flatMap((order) => set.lines[order].map(([tokens, found]) => ({ order, tokens, found })));
  const sizes = [...new Set(points.map((p) => p.tokens))];
  const ends = [...sizes, ...marked.map((p) => p.tokens)];
  const domain = [Math.min(...ends) / 1.2, Math.max(...ends) * 1.2];
  const every = Math.ceil(sizes.length / (width < 500 ? 5 : 13));
  const doubled = Array.from({ length: 40 }, (_, i) => 2 ** i).filter((t) => t >= domain[0] && t <= domain[1]);
  const look = (order) => ORDER_LOOKS[orders.length === 2 && order === orders[1] ? 2 : orders.indexOf(order)];
  const right = marked.length && Math.log(marked[0].tokens / domain[0]) > Math.log(domain[1] / domain[0]) * 0.6;
  const place = { x: "tokens", y: "found" };
  const at = (tokens) =>
    points.filter((p) => p.tokens === tokens).map((p) => `${p.order}: ${percent(p.found)}`);
  return [
    legend(orders.map((order) => [order, look(order).stroke])),
    Plot.plot(
      base(width, {
        height: 260,
        marginTop: 24,
        marginLeft: 52,
        marginBottom: 42,
        ariaLabel: "share of prompt tokens that is found, by the size of the KV cache",
        x: { type: "log", base: 2, domain },
        y: { domain: [0, Math.min(1, Math.max(0.05, 1.15 * Math.max(set.ideal, ...points.map((p) => p.found))))] },
        marks: [
          Plot.axisX({
            ticks: sizes.length > 2 ? sizes.filter((_, i) => i % every === 0) : doubled,
            tickFormat: kvTokens,
            label: "KV cache, in tokens",
            labelAnchor: "center",
            labelArrow: "none",
            tickSize: 0,
          }),
          Plot.axisY({ label: null, ticks: 5, tickFormat: percent, tickSize: 0 }),
          Plot.gridY({ ticks: 5, stroke: LINE, strokeOpacity: 1 }),
          Plot.ruleY([set.ideal], { stroke: FAINT, strokeDasharray: "5,4" }),
          Plot.ruleX(marked, { x: "tokens", stroke: "var(--c3)", strokeWidth: 1.5 }),
          ...orders.map((order) =>
            Plot.line(
              points.filter((p) => p.order === order),
              { ...place, ...look(order), marker: "circle", markerEnd: "circle" },
            ),
          ),
          Plot.dot(marked, { ...place, r: 5, fill: "var(--card)", stroke: "var(--c3)", strokeWidth: 2 }),
          Plot.text(marked, {
            x: "tokens",
            text: (p) => `the plan: ${whole.format(p.tokens)} tokens, ${percent(p.found)}`,
            frameAnchor: "top",
            dy: -16,
            dx: right ? -4 : 4,
            textAnchor: right ? "end" : "start",
            fill: INK,
          }),
          Plot.tip(
            points,
            Plot.pointer({ ...place, title: (p) => [`${kvTokens(p.tokens)} tokens`, ...at(p.tokens)].join("\n") }),
          ),
        ],
        r: { type: "identity" },
      }),
    ),
  ];
}

CHARTS.reuse = (place) => {
  let figure;
  chooser(
    place,
    data.reuse.sets.map(({ name }) => name),
    (index) => {
      reused = index;
      redraw(figure);
    },
  );
  figure = draw(place, reuseCurve, "reuse-curve");
};
