/* Each chart is redrawn when its width changes. Names from user data only ever become text nodes. */

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
// Ticks are round numbers: with digits enough each has a label of its own, and no longer one.
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 6 });
const shortTick = (n) => compact.format(n);
const secondsTo = (digits) => (value) =>
  value < 1 ? `${+(value * 1000).toPrecision(digits)} ms` : `${+value.toPrecision(digits)} s`;
const seconds = secondsTo(3);
const secondsTick = secondsTo(6);

const drawn = new Map();

/* Each chart's function, by the name that the page gives its place. */
const CHARTS = {};

/* A figure inside a chart's place, redrawn at every width. */
function draw(holder, make, id) {
  const place = element("figure", "", "chart");
  if (id) place.id = id;
  holder.append(place);
  drawn.set(place, make);
  redraw(place);
  return place;
}

/* A list to choose from, above a chart; none where there is no choice. */
function chooser(holder, names, chosen) {
  if (names.length < 2) return;
  const controls = element("div", "", "controls"),
    label = element("label", "Show "),
    list = element("select");
  names.forEach((name, i) => list.append(new Option(name, String(i))));
  list.addEventListener("change", () => chosen(Number(list.value)));
  label.append(list);
  controls.append(label);
  holder.append(controls);
}

function redraw(place) {
  const width = Math.max(240, Math.floor(place.clientWidth));
  place.dataset.width = width;
  place.replaceChildren(...[drawn.get(place)(width)].flat().filter(Boolean));
  // One image with one name: the parts of a chart say nothing by themselves.
  for (const chart of place.querySelectorAll("svg[aria-label]")) {
    chart.setAttribute("role", "img");
    for (const part of chart.children) part.setAttribute("aria-hidden", "true");
  }
}

const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const width = Math.max(240, Math.floor(target.clientWidth));
    if (target.clientWidth && Math.abs(width - Number(target.dataset.width)) > 8) redraw(target);
  }
});

function element(tag, text, classes) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (classes) made.className = classes;
  return made;
}

function legend(entries) {
  const made = element("div", "", "legend");
  for (const [name, colour] of entries) {
    const item = element("span", name);
    item.style.setProperty("--swatch", colour);
    made.append(item);
  }
  return made;
}

const INK = "var(--ink)",
  FAINT = "var(--faint)",
  LINE = "var(--line)";
const base = (width, more) => ({
  width,
  marginTop: 8,
  style: { fontSize: "12px", fontFamily: "inherit", color: "var(--soft)", background: "none" },
  ...more,
});
