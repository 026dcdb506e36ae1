// The prior as Python and as a command: what "copy" puts on the clipboard.

import { KERNELS } from "./kernels.mjs";

// The names that `fsplaplace fit --kernel` knows, for kernels written as below.
const NAMES = {
  RBF: "rbf", Matern12: "matern12", Matern32: "matern32", Matern52: "matern52", RationalQuadratic: "rational_quadratic",
  Periodic: "periodic", Linear: "linear", "Linear + Matern32": "linear+matern32", "Matern32 + Linear": "linear+matern32",
};

/** Lines that build the prior and the likelihood; `columns` names the inputs in the order of the length scales. */
export function copiedPython({ kernel, mean, noise, columns = null }) {
  const kinds = [...new Set(kindsOf(kernel))].sort();
  const lines = ["import fsplaplace as fsp"];
  if (kinds.length) lines.push(`from gpjax.kernels import ${kinds.join(", ")}`);
  lines.push("");
  // A JSON string is a Python string, too: a name cannot end it and become code.
  if (columns && columns.length > 1) lines.push(`columns = [${columns.map((name) => JSON.stringify(name)).join(", ")}]  # the inputs, in this order`);
  lines.push(`kernel = ${wrapped(kernel)}`);
  lines.push(`prior = fsp.Prior(kernel${meanArgument(mean)})`);
  lines.push(`likelihood = fsp.likelihoods.Gaussian(scale=${number(noise)})`);
  return lines.join("\n") + "\n";
}

/** The command that fits the table with this kind of kernel, or null if `fsplaplace fit` has no name for it. */
export function copiedCommand({ kernel, file, target }) {
  const name = NAMES[kernel.kind === "sum" ? kernel.parts.map((part) => part.kind).join(" + ") : kernel.kind];
  return name ? `fsplaplace fit ${quoted(file)} --target ${quoted(target)} --kernel ${name}` : null;
}

/** The kernel's expression, over several lines if one would be long. */
function wrapped(kernel) {
  const line = expression(kernel);
  if (line.length <= 50 || !["sum", "product", "Helmholtz"].includes(kernel.kind)) return line;
  if (kernel.kind === "Helmholtz") {
    const parts = ["potential", "stream"].filter((name) => kernel[name]).map((name) => `    ${name}=${expression(kernel[name])},`);
    return ["fsp.kernels.Helmholtz(", ...parts, ")"].join("\n");
  }
  const sign = kernel.kind === "sum" ? "+" : "*";
  const parts = kernel.parts.map((part, k) => `    ${k ? `${sign} ` : ""}${expression(part, kernel.kind === "product")}`);
  return ["(", ...parts, ")"].join("\n");
}

function meanArgument(mean) {
  if (mean.every((value) => value === 0)) return "";
  return mean.length === 1 ? `, mean=${number(mean[0])}` : `, mean=[${mean.map(number).join(", ")}]`;
}

function kindsOf(kernel) {
  if (kernel.kind === "Helmholtz") return [kernel.potential, kernel.stream].filter(Boolean).flatMap(kindsOf);
  return kernel.parts ? kernel.parts.flatMap(kindsOf) : [kernel.kind];
}

function expression(kernel, inProduct = false) {
  if (kernel.kind === "Helmholtz") {
    const parts = ["potential", "stream"].filter((name) => kernel[name]).map((name) => `${name}=${expression(kernel[name])}`);
    return `fsp.kernels.Helmholtz(${parts.join(", ")})`;
  }
  if (kernel.kind === "product") return kernel.parts.map((part) => expression(part, true)).join(" * ");
  if (kernel.kind === "sum") {
    const text = kernel.parts.map((part) => expression(part)).join(" + ");
    return inProduct ? `(${text})` : text;
  }
  const given = KERNELS[kernel.kind].parameters.map(({ name, choices }) => `${name}=${choices ? kernel[name] : value(kernel[name])}`);
  if (kernel.columns) given.unshift(`active_dims=[${kernel.columns.join(", ")}]`);
  return `${kernel.kind}(${given.join(", ")})`;
}

function value(parameter) {
  return Array.isArray(parameter) ? `[${parameter.map(number).join(", ")}]` : number(parameter);
}

/** All digits, so that Python reads the same number; a whole number gets a point, because GPJax would keep it an integer. */
function number(parameter) {
  const text = String(parameter);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

/** A word for the shell: in single quotes if it has anything but plain letters. */
function quoted(word) {
  return /^[\w./-]+$/.test(word) && !word.startsWith("-") ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
