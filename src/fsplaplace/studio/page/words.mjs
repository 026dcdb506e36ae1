// Everything on the page that is words: sentences, formula, Python lines, command.

import { element, find } from "./dom.mjs";
import { columnsOf } from "./kernels.mjs";
import { readable } from "./numbers.mjs";
import { copiedCommand, copiedPython, leavesLengths } from "./python.mjs";
import { describe, nameOf } from "./sentences.mjs";

/** Fills the page's words from what was just drawn. */
export function showWords({ state, summary, rows, table, picture }) {
  const said = describe(picture.kernel, state.mean, rows, summary.width);
  const warnings = [...said.warnings, ...farFromZero(picture.kernel, summary), ...troubles(picture)];
  find("sentences").replaceChildren(
    ...said.sentences.map((text) => element("p", {}, capital(text))), ...warnings.map((text) => element("p", { class: "warning" }, capital(text))));
  find("formula").textContent = formulaOf(picture.kernel);
  find("python").textContent = copiedPython({ kernel: picture.kernel, mean: state.mean, noise: state.noise, columns: summary.inputs, dates: summary.inputs.filter((name, k) => summary.units[k] !== name) });
  const command = state.mode === "field" ? null : copiedCommand({
    kernel: picture.kernel, file: table?.file ?? "DATA.csv", target: state.targets[0] ?? "y", inputs: summary.inputs,
    all: !table || summary.inputs.length + 1 === table.width, dropMissing: rows?.dropped > 0,
  });
  find("command").textContent = command ?? "# `fsplaplace fit` has no name for this kernel: use the Python lines.";
  find("copy-command").disabled = !command;
  find("command-note").textContent = command && leavesLengths(picture.kernel)
    ? "The command finds the length scales of several inputs itself; the Python lines keep yours." : "";
}

/** The kernel's name without outer brackets. */
export function formulaOf(kernel) {
  const name = nameOf(kernel);
  return kernel.parts ? name.slice(1, -1) : name;
}

/** Trends go through zero: where the inputs are far from it, they are almost constants, which nobody means by a trend. */
function farFromZero(kernel, { inputs, units, middle, range, width }) {
  const trends = leavesOf(kernel).filter(({ kind }) => ["Linear", "Polynomial"].includes(kind));
  const seen = [...new Set(trends.flatMap((trend) => columnsOf(trend, width)))].filter((k) => Math.abs(middle[k]) > 2 * range[k]);
  return seen.map((k) => `lines through zero are almost level where ${inputs[k]} is about ${readable(middle[k], 3)}: ` +
    (units[k] === inputs[k] ? `for a trend, subtract ${readable(middle[k], 3)} from ${inputs[k]} in the table`
      : `for a trend, count ${units[k]} from there; fsplaplace fit does`));
}

function leavesOf(kernel) {
  if (kernel.kind === "Helmholtz") return [kernel.potential, kernel.stream].filter(Boolean).flatMap(leavesOf);
  return kernel.parts ? kernel.parts.flatMap(leavesOf) : [kernel];
}

/** What rounding did to the matrices. */
function troubles({ fault, given, prior }) {
  const lines = fault ? [`This prior cannot be drawn: ${fault}. Move a parameter, or add noise.`] : [];
  const jitter = Math.max(given?.jitter ?? 0, prior?.factor.jitter > 1e-8 ? prior.factor.jitter : 0);
  if (jitter > 0) {
    lines.push(`Rounding made the covariance matrix not positive definite; ${jitter} of its mean was added to its diagonal. ` +
      "More noise or a shorter length scale avoids that.");
  }
  return lines;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
