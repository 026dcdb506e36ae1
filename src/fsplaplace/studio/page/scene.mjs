// From numbers to the two canvases: axes that follow without jumping, dots of the data, captions for screen readers.

import { find } from "./dom.mjs";
import { plotField } from "./field.mjs";
import { readable } from "./numbers.mjs";
import { functionsOf } from "./picture.mjs";
import { palette, plotFunctions } from "./plot.mjs";
import { column } from "./sentences.mjs";

// Axis limits change only when what they should show needs more room than they have, or less than this share of it.
const ROOMY = 0.45;
const limits = { prior: null, posterior: null };

/** Forgets the axis limits: other data are shown. */
export function forgetLimits() {
  Object.assign(limits, { prior: null, posterior: null });
}

/** Draws both canvases. Returns true while the axes are still moving. */
export function drawScene(picture, state, summary, rows, turn) {
  const colours = palette();
  const figures = [["prior", picture.prior], ["posterior", picture.posterior]];
  let moving = false;
  if (state.mode === "field") {
    for (const [name, part] of figures) if (part) fieldScene(name, part, picture, state, summary, rows, turn, colours);
  } else {
    for (const [name, part] of figures) {
      if (!part) continue;
      moving = followLimits(name, part, picture, state, summary, rows) || moving;
      functionScene(name, part, picture, state, summary, rows, turn, colours);
    }
  }
  return moving;
}

function functionScene(name, part, picture, state, summary, rows, turn, colours) {
  const { axis } = state, target = summary.targets[0], input = summary.inputs[axis];
  plotFunctions(find(`${name}-canvas`), {
    x: column(picture.points, summary.width, axis), limits: limits[name], colour: name, mean: part.mean, sd: part.sd, strong: name === "posterior",
    functions: functionsOf(part, state.draws, state.seed, turn), labels: [input, target], years: summary.units[axis] === "years",
    dots: rows && { x: column(rows.shown.x, summary.width, axis), y: rows.shown.y, weight: closeness(rows.shown, state, summary) },
  }, colours);
  const held = summary.inputs.filter((_, k) => k !== axis).map((other) => `${other} ${readable(state.at[summary.inputs.indexOf(other)], 3)}`);
  const where = held.length ? `, at ${held.join(", ")}` : "";
  const words = name === "prior"
    ? `${state.draws} of its functions; band: 95 % of values${where}`
    : `given ${rows.numRows} rows: mean, 95 % band, draws${where}`;
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

/** Moves the axis of values towards what it should show; true while it is on its way. */
function followLimits(name, part, picture, state, summary, rows) {
  const wanted = wantedLimits(name, part, picture, state, summary, rows), have = limits[name];
  if (!have) {
    limits[name] = wanted;
    return false;
  }
  const span = have[1] - have[0], want = wanted[1] - wanted[0];
  const fits = wanted[0] >= have[0] - 0.02 * span && wanted[1] <= have[1] + 0.02 * span && want > ROOMY * span;
  if (fits) return false;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const moved = have.map((end, k) => end + (still ? 1 : 0.3) * (wanted[k] - end));
  const there = Math.abs(moved[0] - wanted[0]) + Math.abs(moved[1] - wanted[1]) < 0.004 * want;
  limits[name] = there ? wanted : moved;
  return !there;
}

/** The data and 2.7 standard deviations of the prior; of the posterior its mean, and its band where the data are. */
function wantedLimits(name, part, picture, state, summary, rows) {
  let low = Infinity, high = -Infinity;
  const show = (value) => {
    if (value < low) low = value;
    if (value > high) high = value;
  };
  part.mean.forEach((mean, i) => {
    const x = picture.points[i * summary.width + state.axis];
    const inside = x >= summary.low[state.axis] && x <= summary.high[state.axis];
    const reach = name === "prior" ? 2.7 : inside ? 2.2 : 0;
    show(mean - reach * part.sd[i]);
    show(mean + reach * part.sd[i]);
  });
  if (rows) for (const value of rows.shown.y) show(value);
  const room = 0.04 * (high - low) || 1;
  return [low - room, high + room];
}
