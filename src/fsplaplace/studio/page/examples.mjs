// Made-up tables to try the page with, as CSV text.

import { normals, uniform } from "./random.mjs";

/** Names, words and makers of the examples; `targets` of two columns is a vector field. */
export const EXAMPLES = [
  { name: "a wave with a gap", targets: ["signal"], make: () => table("time,signal", 60, (next, noise) => {
    const t = next() < 0.5 ? 4 * next() : 6 + 4 * next();
    return [t, 3 + 2 * Math.sin(1.7 * t) + 0.25 * noise];
  }) },
  { name: "growth with seasons", targets: ["level"], make: () => table("year,level", 150, (next, noise, i) => {
    const year = i / 12.5;
    return [year, 0.4 * year + 0.06 * year ** 2 + 1.2 * Math.sin(2 * Math.PI * year) + 0.5 * Math.cos(4 * Math.PI * year) + 0.3 * noise];
  }) },
  { name: "a rough walk", targets: ["price"], make: () => {
    const steps = normals(7, 120);
    let price = 20;
    return table("day,price", 120, (next, noise, i) => [i, (price += steps[i] - 0.03 * (price - 20))]);
  } },
  { name: "three inputs", targets: ["yield"], make: () => table("temperature,pressure,stirring,yield", 120, (next, noise) => {
    const [t, p, s] = [20 + 60 * next(), 1 + 4 * next(), 100 * next()];
    return [t, p, s, 40 + 18 * Math.sin(t / 14) + 6 * (p - 3) - 0.8 * (p - 3) ** 2 * 3 + 0.02 * s + 2 * noise];
  }) },
  { name: "a current in a bay (vector field)", targets: ["east", "north"], make: () => table("x,y,east,north", 60, (next, noise, i, other) => {
    const [x, y] = [4 * next() - 2, 4 * next() - 2], swirl = Math.exp(-(x * x + y * y) / 3);
    return [x, y, -1.4 * y * swirl + 0.3 + 0.05 * noise, 1.4 * x * swirl + 0.05 * other];
  }) },
];

function table(header, rows, row) {
  const next = uniform(11), noise = normals(5, 2 * rows);
  const lines = Array.from({ length: rows }, (_, i) => row(next, noise[i], i, noise[rows + i]).map((value) => value.toPrecision(6)).join(","));
  return [header, ...lines].join("\n");
}
