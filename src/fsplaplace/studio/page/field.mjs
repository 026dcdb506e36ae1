// A vector field on a canvas: arrows on a grid, measured arrows on top, uncertainty as shade.

import { axes, freshCanvas, isSmall } from "./plot.mjs";

/** `scene` is {low, high, points, arrows, sd, size, dots: {x, arrows}, colour, labels}: arrows are pairs, two numbers a point. */
export function plotField(canvas, scene, colours) {
  const { context, width, height } = freshCanvas(canvas);
  if (width < 60 || height < 60) return;
  const small = isSmall(height);
  const room = { left: 46, right: width - 10, top: small ? 6 : 28, bottom: height - (small ? 20 : 34) };
  const span = [0, 1].map((k) => 1.2 * (scene.high[k] - scene.low[k] || 1));
  const from = [0, 1].map((k) => scene.low[k] - span[k] / 12);
  // One unit is as long in both directions only if that leaves both readable; data of unlike units fill the frame.
  const alike = Math.max(span[0] / span[1], span[1] / span[0]) < 4;
  const scale = [(room.right - room.left) / span[0], (room.bottom - room.top) / span[1]];
  if (alike) scale.fill(Math.min(...scale));
  const left = room.left + (room.right - room.left - scale[0] * span[0]) / 2;
  const bottom = room.bottom - (room.bottom - room.top - scale[1] * span[1]) / 2;
  const px = (x) => left + (x - from[0]) * scale[0], py = (y) => bottom - (y - from[1]) * scale[1];
  const frame = { left: px(from[0]), right: px(from[0] + span[0]), top: py(from[1] + span[1]), bottom };
  axes(context, frame, { px, py, x: [from[0], from[0] + span[0]], y: [from[1], from[1] + span[1]], labels: scene.labels, small }, colours);
  const cells = Math.sqrt(scene.points.length / 2);
  const cell = Math.min(frame.right - frame.left, frame.bottom - frame.top) / cells;
  const long = (0.42 * cell) / scene.size;
  if (scene.sd) shade(context, scene, px, py, cells, colours);
  const draw = (x, y, arrows, colour, thickness) => {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = thickness;
    for (let i = 0; i < x.length; i++) arrow(context, px(x[i]), py(y[i]), long * arrows[2 * i], -long * arrows[2 * i + 1], thickness);
  };
  const split = (points, k) => Array.from({ length: points.length / 2 }, (_, i) => points[2 * i + k]);
  draw(split(scene.points, 0), split(scene.points, 1), scene.arrows, colours[scene.colour], small ? 1 : 1.5);
  if (scene.dots) draw(split(scene.dots.x, 0), split(scene.dots.x, 1), scene.dots.arrows, colours.data, small ? 1.3 : 2);
}

/** The more uncertain a place, the darker its square. */
function shade(context, scene, px, py, cells, colours) {
  const { points } = scene, last = points.length - 2;
  const [w, h] = [(px(points[last]) - px(points[0])) / (cells - 1), (py(points[1]) - py(points[last + 1])) / (cells - 1)];
  const most = Math.max(...scene.sd, 1e-300);
  context.fillStyle = colours[scene.colour];
  for (let i = 0; i < scene.points.length / 2; i++) {
    context.globalAlpha = (0.22 * Math.hypot(scene.sd[2 * i], scene.sd[2 * i + 1])) / (Math.SQRT2 * most);
    context.fillRect(px(scene.points[2 * i]) - w / 2, py(scene.points[2 * i + 1]) - h / 2, w, h);
  }
  context.globalAlpha = 1;
}

function arrow(context, x, y, dx, dy, thickness) {
  const length = Math.hypot(dx, dy);
  if (!(length > 0.5)) {
    context.fillRect(x - 0.75, y - 0.75, 1.5, 1.5);
    return;
  }
  const head = Math.min(2.2 + 2 * thickness, 0.45 * length), [ux, uy] = [dx / length, dy / length];
  const [tipX, tipY] = [x + dx, y + dy];
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(tipX - 0.8 * head * ux, tipY - 0.8 * head * uy);
  context.stroke();
  context.beginPath();
  context.moveTo(tipX, tipY);
  context.lineTo(tipX - head * ux - 0.55 * head * uy, tipY - head * uy + 0.55 * head * ux);
  context.lineTo(tipX - head * ux + 0.55 * head * uy, tipY - head * uy - 0.55 * head * ux);
  context.fill();
}
