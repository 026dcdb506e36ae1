// Curves on a canvas: axes in the data's own units, a band, functions, and the data.

// Room for numbers and names of the axes; a small canvas shows numbers only.
const MARGIN = { left: 52, right: 10, top: 28, bottom: 34 };
const SMALL = { left: 44, right: 6, top: 6, bottom: 20 };

/** Colours of the page as the style sheet has them now. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return { ink: colour("ink"), soft: colour("soft"), line: colour("line"), prior: colour("prior"), posterior: colour("posterior"), data: colour("data"), card: colour("card"), font: getComputedStyle(document.body).fontFamily };
}

/** A canvas with as many pixels as the screen has, cleared, and its size in CSS pixels. */
export function freshCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  const [pixelsX, pixelsY] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixelsX || canvas.height !== pixelsY) Object.assign(canvas, { width: pixelsX, height: pixelsY });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/**
 * Draws functions over one input. `scene` is {x, limits, colour, mean, sd, functions, dots: {x, y, weight}, labels: [x, y], noise}.
 * The band is two standard deviations wide on each side.
 */
export function plotFunctions(canvas, scene, colours) {
  const { context, width, height } = freshCanvas(canvas);
  if (width < 60 || height < 60) return;
  const small = isSmall(height), margin = small ? SMALL : MARGIN;
  const [x0, x1] = [scene.x[0], scene.x[scene.x.length - 1]], [y0, y1] = scene.limits;
  const frame = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  const px = (x) => frame.left + ((x - x0) / (x1 - x0)) * (frame.right - frame.left);
  const py = (y) => frame.bottom - ((y - y0) / (y1 - y0)) * (frame.bottom - frame.top);
  axes(context, frame, { px, py, x: [x0, x1], y: [y0, y1], labels: scene.labels, small, years: scene.years }, colours);
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top);
  context.clip();
  context.lineJoin = "round";
  const xs = Array.from(scene.x, px), colour = colours[scene.colour];
  band(context, xs, scene, py, colour);
  context.strokeStyle = colour;
  context.lineWidth = small ? 1.1 : 1.4;
  scene.functions.forEach((values, k) => {
    context.globalAlpha = scene.strong ? 0.35 : [0.95, 0.75, 0.6, 0.5][k % 4];
    trace(context, xs, values, py);
    context.stroke();
  });
  context.globalAlpha = 1;
  if (scene.strong) {
    context.lineWidth = small ? 2 : 2.6;
    trace(context, xs, scene.mean, py);
    context.stroke();
  }
  if (scene.dots) dots(context, scene.dots, px, py, colours, small);
  context.restore();
}

function band(context, xs, { mean, sd }, py, colour) {
  context.fillStyle = colour;
  context.globalAlpha = 0.14;
  context.beginPath();
  xs.forEach((x, i) => context.lineTo(x, py(mean[i] + 2 * sd[i])));
  for (let i = xs.length - 1; i >= 0; i--) context.lineTo(xs[i], py(mean[i] - 2 * sd[i]));
  context.fill();
  context.globalAlpha = 1;
}

function trace(context, xs, values, py) {
  context.beginPath();
  xs.forEach((x, i) => context.lineTo(x, py(values[i])));
}

/** Dots; those far from a slice of several inputs are pale. */
function dots(context, { x, y, weight }, px, py, colours, small) {
  const radius = (x.length > 400 ? 1.6 : x.length > 120 ? 2.3 : 3) * (small ? 0.75 : 1);
  context.fillStyle = colours.data;
  context.strokeStyle = colours.card;
  context.lineWidth = 0.8;
  for (let i = 0; i < x.length; i++) {
    context.globalAlpha = weight ? 0.12 + 0.78 * weight[i] : 0.85;
    context.beginPath();
    context.arc(px(x[i]), py(y[i]), radius, 0, 2 * Math.PI);
    context.fill();
    if (x.length <= 400) context.stroke();
  }
  context.globalAlpha = 1;
}

/** Grid lines, numbers and names of both axes. */
export function axes(context, frame, { px, py, x, y, labels, small, years = false }, colours) {
  context.font = `${small ? 10 : 11.5}px ${colours.font}`;
  context.lineWidth = 1;
  context.strokeStyle = colours.line;
  context.fillStyle = colours.soft;
  const grid = (from, to) => {
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  };
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { at, text } of ticks(...y, Math.max(3, Math.round((frame.bottom - frame.top) / 55)))) {
    const place = Math.round(py(at)) + 0.5;
    grid([frame.left, place], [frame.right, place]);
    context.fillText(text, frame.left - 6, place);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  const across = ticks(...x, Math.max(2, Math.round((frame.right - frame.left) / 85)), years);
  for (const { at, text } of across) {
    const place = Math.round(px(at)) + 0.5;
    grid([place, frame.bottom], [place, frame.bottom + 4]);
    context.fillText(text, place, frame.bottom + 6);
  }
  if (small) return;
  context.font = `600 11.5px ${colours.font}`;
  context.textAlign = "right";
  context.textBaseline = "bottom";
  context.fillText(shortened(context, labels[0], 0.8 * (frame.right - frame.left)), frame.right, frame.bottom + 33);
  context.textAlign = "left";
  context.fillText(shortened(context, labels[1], frame.right - frame.left), frame.left, frame.top - 10);
}

/** Whether a canvas of this height has room for the names of its axes. */
export function isSmall(height) {
  return height < 180;
}

function shortened(context, text, room) {
  let shown = text.replaceAll(/\s+/g, " ");
  while (shown.length > 3 && context.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

/** Round numbers between two ends, about `count` of them, with as many digits as tell them apart; no halves of `years` if whole ones do. */
export function ticks(low, high, count, years = false) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const whole = years && raw > 0.7 ? [1, 2, 5, 10, 20, 50, 100, 200, 500].findLast((candidate) => candidate <= 1.45 * raw) : null;
  const step = whole ?? steps.find((candidate) => candidate >= raw * 0.999) ?? 10 * power;
  const decimals = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (Math.abs(step / power - 2.5) < 1e-6 ? 1 : 0)), 12);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && found.length < 60; k++) {
    const at = k * step, size = Math.max(Math.abs(low), Math.abs(high));
    // With an exponent, as many digits as tell neighbours apart.
    const digits = Math.min(Math.max(1, Math.ceil(Math.log10(size / step)) + 1), 17);
    const text = size >= 1e6 || size < 1e-3 ? Number(at.toPrecision(digits)).toExponential().replace("e+", "e") : at.toFixed(decimals);
    found.push({ at, text: (Number(text) === 0 ? "0" : text).replace("-", "−") });
  }
  return found;
}
