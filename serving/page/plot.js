// @ts-check
/** Plots of a few lines or bars, as SVG that adapts to the theme; each says in words what it shows. */

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [320, 150, 44, 22, 10, 8];

/**
 * @param {string} name
 * @param {Record<string, string | number>} attributes
 * @param {string} [text]
 */
function element(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/**
 * Return a number in few characters.
 *
 * @param {number} value
 */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 10_000) return `${Math.round(value / 1000)}k`;
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return String(Number(value.toPrecision(size >= 1 ? 3 : 2)));
}

/**
 * Return a round number that is at least as large, for the end of an axis.
 *
 * @param {number} value
 */
export function ceiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * power >= value * 0.999999) ?? 10) * power;
}

/**
 * @typedef {{x: number, y: number, isHollow?: boolean}} Point
 * @typedef {{name: string, points: Point[], dots?: boolean}} Series
 * @typedef {{x: string, y: string, series: Series[], from?: number, to?: number, mark?: {x: number, name: string}}} Plot
 */

/**
 * Draw a plot into an element: lines through points, which may be dots, too.  At the `mark` a vertical line stands.
 *
 * @param {Element} parent
 * @param {Plot} plot
 */
export function draw(parent, plot) {
  const points = plot.series.flatMap((series) => series.points);
  const from = plot.from ?? Math.min(0, ...points.map((point) => point.x));
  const to = plot.to ?? Math.max(from + 1e-9, ...points.map((point) => point.x), plot.mark?.x ?? -Infinity);
  const top = ceiling(Math.max(0, ...points.map((point) => point.y)));
  const px = (/** @type {number} */ x) => LEFT + ((x - from) / (to - from || 1)) * (WIDTH - LEFT - RIGHT);
  const py = (/** @type {number} */ y) => HEIGHT - BOTTOM - (y / top) * (HEIGHT - BOTTOM - TOP);
  const said = plot.series.map(({ name, points: own }) => `${name}: ${own.length ? short(own[own.length - 1].y) : "nothing yet"}`);
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "plot" });
  svg.append(element("title", {}, `${plot.y} against ${plot.x}. Last: ${said.join(", ")}.`));
  for (const share of [0, 0.5, 1]) {
    const y = py(share * top);
    svg.append(element("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, class: "grid" }));
    svg.append(element("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, short(share * top)));
  }
  svg.append(element("text", { x: LEFT, y: HEIGHT - 5 }, to ? short(from) : `${short(from)} ${plot.x}`));
  svg.append(element("text", { x: WIDTH - RIGHT, y: HEIGHT - 5, "text-anchor": "end" }, to ? `${short(to)} ${plot.x}` : "now"));
  if (plot.mark !== undefined) {
    const x = px(plot.mark.x);
    svg.append(element("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM, class: "mark" }));
  }
  plot.series.forEach((series, n) => {
    const path = series.points.map(({ x, y }) => `${px(x).toFixed(1)},${py(y).toFixed(1)}`).join(" ");
    if (path) svg.append(element("polyline", { points: path, class: `series-${n}` }));
    for (const { x, y, isHollow } of series.dots ? series.points : []) {
      svg.append(element("circle", { cx: px(x), cy: py(y), r: 4, class: `series-${n}${isHollow ? " hollow" : ""}` }));
    }
  });
  if (!points.length) {
    svg.append(element("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "nothing yet"));
  }
  const named = plot.series.map(({ name }, n) => [name, `series-${n}`]);
  if (plot.mark) named.push([plot.mark.name, "mark"]);
  parent.replaceChildren(svg, ...(named.length > 1 ? [legend(named)] : []));
}

/** @param {string[][]} named Names, each with the class of what it names. */
function legend(named) {
  const list = document.createElement("p");
  list.className = "legend";
  for (const [name, kind] of named) {
    const item = document.createElement("span");
    item.className = kind;
    item.textContent = name;
    list.append(item);
  }
  return list;
}
