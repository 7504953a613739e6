// Chart of means with their intervals: dots on lines, one per row.

import { numberText } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 44; // pixels, with the name above the line
const AXIS = 26;
const TICKS = 4; // about

/** Return a chart of rows `{name, mean, low, high, isClear?}`, as wide as its container. */
export function intervalChart(label, rows, hasZero) {
  const shown = rows.filter((row) => row.mean !== null);
  const values = shown.flatMap((row) => [row.mean, row.low ?? row.mean, row.high ?? row.mean]);
  const ticks = ticksOf(hasZero || values.length === 0 ? [0, ...values] : values);
  const x = (value) => `${(4 + (92 * (value - ticks[0])) / (ticks.at(-1) - ticks[0])).toFixed(3)}%`;
  const bottom = ROW * rows.length + 6;
  const chart = shape("svg", { class: "chart", role: "img", "aria-label": label, height: bottom + AXIS });
  for (const tick of ticks) {
    const name = tick === 0 && hasZero ? "zero" : "grid";
    chart.append(shape("line", { class: name, x1: x(tick), x2: x(tick), y1: 0, y2: bottom }));
    chart.append(text("tick", x(tick), bottom + 18, numberText(tick)));
  }
  rows.forEach((row, i) => chart.append(...rowShapes(row, x, ROW * i)));
  return chart;
}

function rowShapes(row, x, top) {
  const y = top + 32;
  const kind = row.isClear === false ? "unclear" : "dot";
  const shapes = [text("name", "0", top + 18, row.name)];
  if (row.mean === null) return shapes;
  if (row.low !== null && row.high !== null) {
    shapes.push(shape("line", { class: "interval", x1: x(row.low), x2: x(row.high), y1: y, y2: y }));
    for (const end of [row.low, row.high]) {
      shapes.push(shape("line", { class: "interval", x1: x(end), x2: x(end), y1: y - 5, y2: y + 5 }));
    }
  }
  shapes.push(shape("circle", { class: kind, cx: x(row.mean), cy: y, r: 5 }));
  return shapes;
}

/** Return round tick values that enclose the smallest and the largest value. */
export function ticksOf(values) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const first = Math.floor(low / step);
  const last = Math.ceil(high / step);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

export function text(name, x, y, content) {
  const node = shape("text", { class: name, x, y });
  node.textContent = content;
  return node;
}

export function shape(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}
