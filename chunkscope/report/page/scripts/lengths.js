/* Histogram and cumulative curve of the prompts' lengths, of one dataset or all. */

const MARK_COLOURS = {
  long_prefill_token_threshold: "var(--c2)",
  max_num_batched_tokens: "var(--faint)",
  max_model_len: "var(--bad)",
};
const MARK_INKS = { long_prefill_token_threshold: "var(--c2-ink)" }; // words need more contrast
let shown = 0;

function lengthAxis(width) {
  const { edges, sets, before } = data.lengths;
  const marks = data.lengths.marks.map((mark) => mark.tokens);
  const low = Math.max(1, edges[0]);
  const high = Math.max(edges[edges.length - 1], ...marks, ...(before || []).slice(-1));
  const ticks = [];
  const every = Math.log2(high / low) > (width < 500 ? 8 : 16) ? 2 : 1;
  for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power += every) ticks.push(2 ** power);
  return { type: "log", base: 2, domain: [low, high * 1.05], ticks };
}

const tokensAt = (tick) => (tick >= 1024 ? `${+(tick / 1024).toFixed(1)}K` : `${tick}`);

function markRules(withLabels) {
  const high = lengthAxis(1000).domain[1];
  return data.lengths.marks.flatMap((mark, row) => {
    const colour = MARK_COLOURS[mark.kind];
    const right = Math.log2(mark.tokens) > Math.log2(high) * 0.6;
    const rule = Plot.ruleX([mark.tokens], {
      stroke: colour,
      strokeWidth: 1.5,
      strokeDasharray: mark.kind === "long_prefill_token_threshold" ? "5,3" : null,
    });
    const label = Plot.text([mark], {
      x: "tokens",
      text: (d) => `${d.label} ${whole.format(d.tokens)}`,
      frameAnchor: "top",
      textAnchor: right ? "end" : "start",
      dx: right ? -4 : 4,
      dy: -14 * (data.lengths.marks.length - row),
      lineAnchor: "top",
      fill: MARK_INKS[mark.kind] || colour,
      stroke: "var(--card)",
      strokeWidth: 4,
    });
    return withLabels ? [rule, label] : [rule];
  });
}

function histogram(width) {
  const { edges, sets } = data.lengths;
  const bins = sets[shown].counts.map((count, i) => ({ low: edges[i], high: edges[i + 1], count }));
  const filled = bins.filter((bin) => bin.count);
  // What is there at all is visible: the few long prompts are what this is about.
  const visible = 0.012 * Math.max(...bins.map((bin) => bin.count));
  return Plot.plot(
    base(width, {
      height: 190 + 14 * data.lengths.marks.length,
      marginTop: 10 + 14 * data.lengths.marks.length,
      marginLeft: 48,
      ariaLabel: "histogram of prompt lengths",
      x: lengthAxis(width),
      y: { nice: true },
      marks: [
        Plot.axisX({ ticks: lengthAxis(width).ticks, tickFormat: tokensAt, label: null }),
        Plot.axisY({ ticks: 4, label: "prompts", tickFormat: shortTick, tickSize: 0 }),
        Plot.gridY({ ticks: 4, stroke: LINE, strokeOpacity: 1 }),
        Plot.rectY(filled, {
          x1: "low",
          x2: "high",
          y: (bin) => Math.max(bin.count, visible),
          fill: "var(--c1)",
          insetLeft: 0.5,
          insetRight: 0.5,
          ry: 1,
        }),
        Plot.ruleY([0], { stroke: FAINT }),
        ...markRules(true),
        Plot.tip(
          filled,
          Plot.pointerX({
            x: (d) => Math.sqrt(d.low * d.high),
            y: "count",
            title: (d) =>
              `${whole.format(d.count)} of ${whole.format(sets[shown].rows)} prompts\n` +
              (d.high - d.low > 1
                ? `${whole.format(d.low)} to ${whole.format(d.high - 1)} tokens`
                : `${whole.format(d.low)} tokens`),
          }),
        ),
      ],
    }),
  );
}

function curve(at, name) {
  return at.map((tokens, i) => ({
    tokens: Math.max(1, tokens),
    exact: tokens,
    percent: data.lengths.percents[i],
    name,
  }));
}

function cumulative(width) {
  const { sets, before } = data.lengths;
  const others = sets.flatMap((set, i) => (i === shown || i === 0 ? [] : curve(set.at, set.name)));
  const chosen = curve(sets[shown].at, sets[shown].name);
  const line = { x: "tokens", y: "percent", z: "name", clip: true };
  const chart = Plot.plot(
    base(width, {
      height: 240,
      marginLeft: 48,
      marginBottom: 42,
      ariaLabel: "share of prompts that are at most so long",
      x: lengthAxis(width),
      y: { domain: [0, 100] },
      marks: [
        Plot.axisX({
          ticks: lengthAxis(width).ticks,
          tickFormat: tokensAt,
          label: "tokens per prompt",
          labelAnchor: "center",
          labelArrow: "none",
        }),
        Plot.axisY({ ticks: [0, 25, 50, 75, 95], label: null, tickFormat: (p) => `${p} %`, tickSize: 0 }),
        Plot.gridY({ ticks: [25, 50, 75, 95], stroke: LINE, strokeOpacity: 1 }),
        Plot.lineY(others, {
          ...line,
          stroke: FAINT,
          strokeOpacity: sets.length > 20 ? 0.2 : 0.4,
          strokeWidth: 1,
        }),
        shown
          ? Plot.lineY(curve(sets[0].at, sets[0].name), { ...line, stroke: INK, strokeWidth: 1.5 })
          : null,
        before
          ? Plot.lineY(curve(before, "before"), {
              ...line,
              stroke: "var(--c2)",
              strokeDasharray: "2,3",
              strokeWidth: 2,
            })
          : null,
        Plot.lineY(chosen, { ...line, stroke: "var(--c1)", strokeWidth: 2.5 }),
        ...markRules(false),
        Plot.dot(chosen, Plot.pointerX({ x: "tokens", y: "percent", fill: "var(--c1)", r: 4 })),
        Plot.tip(
          chosen,
          Plot.pointerX({
            x: "tokens",
            y: "percent",
            title: (d) => `p${d.percent}: ${whole.format(d.exact)} tokens\n${cut(d.name, 40)}`,
          }),
        ),
      ],
    }),
  );
  const key = [[sets[shown].name, "var(--c1)"]];
  if (shown) key.push([sets[0].name, INK]);
  if (others.length) key.push(["each other dataset", FAINT]);
  if (before) key.push(["all together, before", "var(--c2)"]);
  return [legend(key), chart];
}

CHARTS.lengths = (place) => {
  const figures = [];
  chooser(
    place,
    data.lengths.sets.map((set) => set.name),
    (index) => {
      shown = index;
      figures.forEach(redraw);
    },
  );
  figures.push(draw(place, histogram, "histogram"), draw(place, cumulative, "cumulative"));
};
