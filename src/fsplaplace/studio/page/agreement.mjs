// Everything that the page computes about one prior, as plain numbers and text: what the tests compare with Python.

import { covariance, numOutputs } from "./covariance.mjs";
import { copiedPython } from "./python.mjs";
import { condition, posterior } from "./process.mjs";
import { describe } from "./sentences.mjs";

/**
 * `asked` is {kernel, mean, noise, x, y, points}: rows of inputs, targets (a number or a pair for each row) and points to predict at.
 * Without x and y: the sentences of the prior alone.
 */
export function numbersOf({ kernel, mean, noise, x, y, points, width }) {
  const text = copiedPython({ kernel, mean, noise });
  if (!x) return { python: text, ...describe(kernel, mean, null, width) };
  const data = { x: Float64Array.from(x.flat()), width: x[0].length, y: Float64Array.from(y.flat()) };
  const given = condition(kernel, data, mean, noise ** 2);
  const predicted = posterior(given, Float64Array.from(points.flat()), true);
  return {
    outputs: numOutputs(kernel),
    gram: [...covariance(kernel, data.width, data.x)],
    logEvidence: given.logEvidence,
    mean: [...predicted.mean],
    covariance: [...predicted.covariance],
    python: text,
    ...describe(kernel, mean, data),
  };
}
