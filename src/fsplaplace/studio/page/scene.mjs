// From numbers to the two canvases: axes that follow without jumping, dots of the data, captions for screen readers.

import { find } from "./dom.mjs";
import { plotField } from "./field.mjs";
import { readable } from "./numbers.mjs";
import { functionsOf } from "./picture.mjs";
import { palette, plotFunctions } from "./plot.mjs";
import { column } from "./sentences.mjs";

// Axis limits change only when what they should show needs more room than they have, or less than this share of it.
const ROOMY = 0.45;
let limits = null;

/** Forgets the axis limits: other data are shown. */
export function forgetLimits() {
  limits = null;
}

/** Draws both canvases. Returns true while the axes are still moving. */
export function drawScene(picture, state, summary, rows, turn) {
  const colours = palette();
  const figures = [["prior", picture.prior], ["posterior", picture.posterior]];
  let moving = false;
  if (state.mode === "field") {
    for (const [name, part] of figures) if (part) fieldScene(name, part, picture, state, summary, rows, turn, colours);
  } else {
    moving = followLimits(picture, rows);
    for (const [name, part] of figures) if (part) functionScene(name, part, picture, state, summary, rows, turn, colours);
  }
  return moving;
}

function functionScene(name, part, picture, state, summary, rows, turn, colours) {
  const { axis } = state, target = summary.targets[0], input = summary.inputs[axis];
  plotFunctions(find(`${name}-canvas`), {
    x: column(picture.points, summary.width, axis), limits, colour: name, mean: part.mean, sd: part.sd, strong: name === "posterior",
    functions: functionsOf(part, state.draws, state.seed, turn), labels: [input, target],
    dots: rows && { x: column(rows.shown.x, summary.width, axis), y: rows.shown.y, weight: closeness(rows.shown, state, summary) },
  }, colours);
  const held = summary.inputs.filter((_, k) => k !== axis).map((other) => `${other} ${readable(state.at[summary.inputs.indexOf(other)], 3)}`);
  const where = held.length ? `, at ${held.join(", ")}` : "";
  const words = name === "prior"
    ? `${state.draws} functions of ${input} drawn from the prior${where}; 95 % of values lie in the band`
    : `what ${rows.numRows} rows leave of it${where}: mean, band of 95 %, ${state.draws} functions`;
  caption(name, words);
}

function fieldScene(name, part, picture, state, summary, rows, turn, colours) {
  const drawn = name === "prior" ? functionsOf(part, 1, state.seed, turn)[0] : part.mean;
  plotField(find(`${name}-canvas`), {
    low: summary.low, high: summary.high, points: picture.points, arrows: drawn, colour: name, labels: summary.inputs,
    sd: name === "posterior" ? part.sd : null, size: Math.max(...picture.prior.sd, 1e-300),
    dots: rows && { x: rows.x, arrows: rows.y },
  }, colours);
  caption(name, name === "prior" ? "one field drawn from the prior" : `mean given ${rows.numRows} measured arrows; darker is less certain`);
}

function caption(name, words) {
  const shown = find(`${name}-caption`);
  if (shown.textContent === words) return;
  shown.textContent = words;
  find(`${name}-canvas`).setAttribute("aria-label", `${name}: ${words}`);
}

/** One for a row in the slice, towards zero for one that is a third of the range away in another input. */
function closeness(shown, state, summary) {
  if (summary.width === 1) return null;
  return Array.from({ length: shown.x.length / summary.width }, (_, i) => {
    let far = 0;
    for (let k = 0; k < summary.width; k++) if (k !== state.axis) far += ((shown.x[i * summary.width + k] - state.at[k]) / (0.33 * summary.range[k])) ** 2;
    return Math.exp((-0.5 * far) / (summary.width - 1));
  });
}

function followLimits(picture, rows) {
  const { prior } = picture;
  if (!prior) return false;
  let low = Infinity, high = -Infinity;
  const show = (value) => {
    if (value < low) low = value;
    if (value > high) high = value;
  };
  prior.mean.forEach((mean, i) => {
    show(mean - 2.7 * prior.sd[i]);
    show(mean + 2.7 * prior.sd[i]);
  });
  if (rows) for (const value of rows.shown.y) show(value);
  const room = 0.03 * (high - low) || 1, wanted = [low - room, high + room];
  if (!limits) {
    limits = wanted;
    return false;
  }
  const have = limits[1] - limits[0], want = wanted[1] - wanted[0];
  const fits = wanted[0] >= limits[0] - 0.02 * have && wanted[1] <= limits[1] + 0.02 * have && want > ROOMY * have;
  if (fits) return false;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  limits = limits.map((end, k) => end + (still ? 1 : 0.3) * (wanted[k] - end));
  if (Math.abs(limits[0] - wanted[0]) + Math.abs(limits[1] - wanted[1]) < 0.004 * want) limits = wanted;
  return limits !== wanted;
}
