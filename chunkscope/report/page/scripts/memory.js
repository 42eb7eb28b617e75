/* Where the memory goes: a bar per setting, predicted and measured. */

const PART_COLOURS = {
  weights: "var(--c1)",
  activation: "var(--c2)",
  sampler: "var(--c3)",
  logprobs: "var(--c4)",
  "CUDA graphs": "var(--c5)",
  overhead: "var(--c6)",
  "KV cache": "var(--c7)",
};

function memoryBars(width, keep, limits) {
  const { bills, parts } = data.memory;
  const used = parts.filter(keep);
  const narrow = width < 500;
  const name = (bill) => `${bill.setting}, ${bill.label}`;
  const order = bills.map(name);
  // The setting stands once. On a phone how full a bar is says the rest.
  const label = (bill, i) => {
    const again = i && bills[i - 1].setting === bill.setting;
    if (narrow) return again ? "" : squeeze(bill.setting, 15);
    return again ? bill.label : `${squeeze(bill.setting, 30)}, ${bill.label}`;
  };
  const labels = new Map(bills.map((bill, i) => [name(bill), label(bill, i)]));
  const pieces = bills.flatMap((bill) => {
    let from = 0;
    return used
      .filter((part) => part in bill.parts)
      .map((part) => {
        const piece = {
          row: name(bill),
          part,
          gib: bill.parts[part],
          x1: from,
          x2: from + bill.parts[part],
          measured: bill.label === "measured",
        };
        from = piece.x2;
        return piece;
      });
  });
  const totals = bills.map((bill) => ({
    row: name(bill),
    fate: bill.fate,
    gib: used.reduce((sum, part) => sum + (bill.parts[part] || 0), 0),
    activation: bill.parts.activation,
    peak: bill.peak,
  }));
  const peaks = totals
    .filter((t) => t.peak !== null)
    .map((t) => ({ row: t.row, part: "most the GPU held", gib: t.peak, x1: t.peak, x2: t.peak }));
  const longest = Math.max(...[...labels.values()].map((text) => text.length));
  const lines = limits
    ? [
        [data.memory.allowed, "vLLM's share"],
        [data.memory.limit, "GPU"],
      ].filter(([at]) => at)
    : [];
  return [
    legend(used.map((part) => [part, PART_COLOURS[part]])),
    Plot.plot(
      base(width, {
        height: 30 * order.length + 50 + 15 * lines.length,
        marginLeft: longest * 7 + 22,
        marginTop: 6 + 15 * lines.length,
        marginRight: limits ? 16 : narrow ? 62 : 124,
        marginBottom: 36,
        ariaLabel: limits ? "memory of one GPU by setting" : "memory without weights and KV cache",
        x: {
          label: "GiB",
          nice: !limits,
          domain: lines.length
            ? [0, Math.max(...lines.map(([at]) => at), ...totals.flatMap((t) => [t.gib, t.peak || 0])) * 1.01]
            : undefined,
          zero: true,
        },
        y: { domain: order, label: null, padding: 0.25 },
        marks: [
          Plot.axisX({
            label: "GiB",
            labelArrow: "none",
            labelAnchor: "center",
            ticks: narrow ? 3 : 8,
            tickSize: 0,
          }),
          Plot.axisY({ tickSize: 0, tickFormat: (row) => labels.get(row) }),
          Plot.gridX({ stroke: LINE, strokeOpacity: 1, ticks: narrow ? 3 : 8 }),
          Plot.barX(pieces, { x1: "x1", x2: "x2", y: "row", fill: "var(--card)" }),
          Plot.barX(pieces, {
            x1: "x1",
            x2: "x2",
            y: "row",
            fill: (d) => PART_COLOURS[d.part],
            insetLeft: 0.5,
            insetRight: 0.5,
            rx: 2,
            fillOpacity: (d) => (d.measured ? 1 : 0.6),
          }),
          Plot.text(
            totals.filter((t) => t.fate),
            {
              x: (t) => t.gib,
              y: "row",
              text: "fate",
              textAnchor: "start",
              dx: 6,
              fill: BAD,
              fontWeight: 600,
            },
          ),
          limits
            ? null
            : Plot.text(
                totals.filter((t) => t.activation !== undefined),
                {
                  x: "gib",
                  y: "row",
                  text: (t) => (narrow ? "" : "activation ") + gib(t.activation),
                  textAnchor: "start",
                  dx: 6,
                  fill: "var(--soft)",
                },
              ),
          limits
            ? Plot.tickX(
                totals.filter((t) => t.peak !== null),
                { x: "peak", y: "row", stroke: INK, strokeWidth: 2.5 },
              )
            : null,
          ...lines.flatMap(([at, label], i) => [
            Plot.ruleX([at], {
              stroke: label === "GPU" ? BAD : FAINT,
              strokeWidth: 1.5,
              strokeDasharray: label === "GPU" ? null : "5,3",
            }),
            Plot.text([at], {
              x: (d) => d,
              text: () => `${label} ${gib(at)}`,
              frameAnchor: "top",
              textAnchor: "end",
              dx: -4,
              dy: -15 * (lines.length - i),
              lineAnchor: "top",
              fill: label === "GPU" ? BAD : FAINT,
            }),
          ]),
          Plot.tip(
            limits ? [...pieces, ...peaks] : pieces,
            Plot.pointer({
              x: (d) => (d.x1 + d.x2) / 2,
              y: "row",
              title: (d) => `${d.part}: ${gib(d.gib)}\n${d.row}`,
            }),
          ),
        ],
      }),
    ),
  ];
}

CHARTS.memory = (place) => {
  draw(place, (width) => memoryBars(width, () => true, true), "memory-all");
  place.append(element("h3", "Without weights and KV cache: what the setting changes"));
  draw(place, (width) => memoryBars(width, (part) => part !== "weights" && part !== "KV cache", false), "memory-rest");
};
