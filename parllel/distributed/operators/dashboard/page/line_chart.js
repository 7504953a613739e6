// Chart of lines, as wide as its container, with a mark that can be moved.

import { shape, text, ticksOf } from "./chart.js";
import { element } from "./dom.js";
import { numberText } from "./words.js";

const HEIGHT = 120; // pixels, of the lines
const ABOVE = 14;
const AXIS = 22;
export const SERIES = 6; // colours, of which each line takes the next

export class LineChart {
  node;
  #mark = shape("g", { class: "mark" });
  #lines;
  #x;
  #y;

  /** lines: `{name, points}`, points: pairs of numbers in the order of the first; null as the second is a gap.
      xName: what is counted, below the chart; pick: called with the number at the place of a click or a drag. */
  constructor(label, lines, xName, pick = null) {
    this.#lines = lines;
    const xs = lines.flatMap(({ points }) => points.map(([x]) => x));
    const values = lines.flatMap(({ points }) => points.map(([, y]) => y).filter((y) => y !== null));
    const [first, last] = xs.length ? [least(xs), most(xs)] : [0, 1];
    const ticks = ticksOf(values.length ? [least(values), most(values)] : [0]);
    this.#x = (x) => (last === first ? 0.5 : (x - first) / (last - first));
    this.#y = (y) => ABOVE + HEIGHT * (1 - (y - ticks[0]) / (ticks.at(-1) - ticks[0]));
    const chart = shape("svg", { class: "chart curve", role: "img", "aria-label": label, height: ABOVE + HEIGHT + AXIS });
    for (const tick of ticks) {
      const y = this.#y(tick);
      chart.append(shape("line", { class: "grid", x1: "0", x2: "100%", y1: y, y2: y }));
    }
    const frame = { x: 0, y: 0, width: "100%", height: ABOVE + HEIGHT, viewBox: `0 0 1 ${ABOVE + HEIGHT}` };
    const inner = shape("svg", { class: "chart", preserveAspectRatio: "none", ...frame });
    lines.forEach(({ points }, i) => inner.append(...this.#shapes(points, i)));
    const bottom = ABOVE + HEIGHT + 16;
    const ends = first === last ? [["50%", "middle", first]] : [["0", "start", first], ["100%", "end", last]];
    for (const [x, anchor, value] of ends) chart.append(anchored(x, bottom, `${xName} ${value}`, anchor));
    chart.append(inner, this.#mark);
    // Last, or they could not be read where a line or the mark crosses them.
    for (const tick of ticks) chart.append(text("level", "0", this.#y(tick) - 3, numberText(tick)));
    if (pick !== null) listen(chart, (share) => pick(Math.round(first + share * (last - first))));
    const legend = lines.map(({ name }, i) => element("li", { "data-series": i % SERIES }, name));
    this.node = element("div", { class: "plot" }, chart);
    if (lines.length > 1) this.node.append(element("ul", { class: "legend" }, ...legend));
  }

  /** Move the mark. Each line has a dot at its last point up to there. */
  mark(x) {
    const at = `${100 * this.#x(x)}%`;
    const marks = [shape("line", { x1: at, x2: at, y1: ABOVE, y2: ABOVE + HEIGHT })];
    this.#lines.forEach(({ points }, i) => {
      const point = points.findLast((one) => one[0] <= x && one[1] !== null);
      if (point) marks.push(this.#dot(point, i, 4.5));
    });
    this.#mark.replaceChildren(...marks);
  }

  #dot([x, y], i, r) {
    return shape("circle", { "data-series": i % SERIES, cx: `${100 * this.#x(x)}%`, cy: this.#y(y), r });
  }

  #shapes(points, i) {
    const parts = [[]];
    for (const [x, y] of points) {
      if (y === null) parts.push([]);
      else parts.at(-1).push(`${this.#x(x)},${this.#y(y)}`);
    }
    return parts
      .filter((part) => part.length)
      .map((part) => shape("polyline", { "data-series": i % SERIES, points: [part[0], ...part].join(" ") }));
  }
}

function anchored(x, y, content, anchor) {
  const node = text("level", x, y, content);
  node.style.textAnchor = anchor;
  return node;
}

function listen(chart, pick) {
  const at = (event) => {
    const { left, width } = chart.getBoundingClientRect();
    pick(Math.min(1, Math.max(0, (event.clientX - left) / width)));
  };
  chart.classList.add("picked");
  chart.addEventListener("pointerdown", (event) => {
    chart.setPointerCapture(event.pointerId);
    at(event);
  });
  chart.addEventListener("pointermove", (event) => event.buttons && at(event));
}

// Spreading thousands of numbers into Math.min could overflow the stack.
const least = (numbers) => numbers.reduce((a, b) => Math.min(a, b));
const most = (numbers) => numbers.reduce((a, b) => Math.max(a, b));
