/* Histogram of the prompts' lengths in doubling steps, of one dataset or all. */

const MARK_COLOURS = {
  long_prefill_token_threshold: "var(--c2)",
  max_num_batched_tokens: "var(--faint)",
  max_model_len: "var(--bad)",
};
const MARK_INKS = { long_prefill_token_threshold: "var(--c2-ink)" }; // words need more contrast
let shown = 0;
const first = (low) => Math.max(low, 32); // a log axis has no place for 0, where the first step begins

function lengthAxis(width) {
  const bins = data.lengths.sets[0].bins;
  const low = first(bins[0][0]);
  const high = Math.max(bins[bins.length - 1][1], ...data.lengths.marks.map((mark) => mark.tokens));
  const ticks = [];
  const every = Math.log2(high / low) > (width < 500 ? 8 : 16) ? 2 : 1;
  for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power += every) ticks.push(2 ** power);
  return { type: "log", base: 2, domain: [low, high * 1.05], ticks };
}

const fromZero = (tick) => tick === 32 && data.lengths.sets[0].bins[0][0] === 0;
const tokensAt = (tick) => (fromZero(tick) ? "0" : tick >= 1024 ? `${+(tick / 1024).toFixed(1)}K` : `${tick}`);

function markRules() {
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
    return [rule, label];
  });
}

function histogram(width) {
  const bins = data.lengths.sets[shown].bins.map(([low, high, count]) => ({ low, high, count }));
  const filled = bins.filter((bin) => bin.count);
  const rows = bins.reduce((sum, bin) => sum + bin.count, 0);
  // What is there at all is visible: the few long prompts are what this is about.
  const visible = 0.012 * Math.max(...bins.map((bin) => bin.count));
  return Plot.plot(
    base(width, {
      height: 220 + 14 * data.lengths.marks.length,
      marginTop: 10 + 14 * data.lengths.marks.length,
      marginLeft: 48,
      marginBottom: 42,
      ariaLabel: "histogram of prompt lengths",
      x: lengthAxis(width),
      y: { nice: true },
      marks: [
        Plot.axisX({
          ticks: lengthAxis(width).ticks,
          tickFormat: tokensAt,
          label: "prompts by length in tokens",
          labelAnchor: "center",
          labelArrow: "none",
        }),
        Plot.axisY({ ticks: 4, label: null, tickFormat: shortTick, tickSize: 0 }),
        Plot.gridY({ ticks: 4, stroke: LINE, strokeOpacity: 1 }),
        Plot.rectY(filled, {
          x1: (bin) => first(bin.low),
          x2: "high",
          y: (bin) => Math.max(bin.count, visible),
          fill: "var(--c1)",
          insetLeft: 0.5,
          insetRight: 0.5,
          ry: 1,
        }),
        Plot.ruleY([0], { stroke: FAINT }),
        ...markRules(),
        Plot.tip(
          filled,
          Plot.pointerX({
            x: (d) => Math.sqrt(first(d.low) * d.high),
            y: "count",
            title: (d) =>
              `${whole.format(d.count)} of ${whole.format(rows)} prompts\n` +
              (d.low ? `${whole.format(d.low)} to ${whole.format(d.high - 1)}` : `under ${d.high}`) +
              " tokens",
          }),
        ),
      ],
    }),
  );
}

CHARTS.lengths = (place) => {
  let figure;
  chooser(
    place,
    data.lengths.sets.map((set) => set.name),
    (index) => {
      shown = index;
      redraw(figure);
    },
  );
  figure = draw(place, histogram, "histogram");
};
