// The prior as Python and as a command: what "copy" puts on the clipboard.

import { KERNELS } from "./kernels.mjs";

// The names that `fsplaplace fit --kernel` knows, and the parameters that it keeps as stated: in a table's own units all but
// those of a trend, which `fit` centres.
const NAMES = {
  RBF: ["rbf", "lengthscale", "variance"],
  Matern12: ["matern12", "lengthscale", "variance"],
  Matern32: ["matern32", "lengthscale", "variance"],
  Matern52: ["matern52", "lengthscale", "variance"],
  RationalQuadratic: ["rational_quadratic", "lengthscale", "alpha", "variance"],
  Periodic: ["periodic", "period", "lengthscale", "variance"],
  Linear: ["linear"],
};

/** Lines that build the prior and the likelihood; `columns` names the inputs in the order of the length scales, `dates` those in years. */
export function copiedPython({ kernel, mean, noise, columns = null, dates = [] }) {
  const kinds = [...new Set(kindsOf(kernel))].sort();
  const lines = ["import fsplaplace as fsp"];
  if (kinds.length) lines.push(`from gpjax.kernels import ${kinds.join(", ")}`);
  lines.push("");
  // A JSON string is a Python string, too: a name cannot end it and become code.
  if (columns && columns.length > 1) lines.push(`columns = [${columns.map((name) => JSON.stringify(name)).join(", ")}]  # the inputs, in this order`);
  if (dates.length) lines.push(`# ${dates.map((name) => JSON.stringify(name)).join(", ")} in years: 1970 + days since 1970-01-01 / 365.2425`);
  lines.push(`kernel = ${wrapped(kernel)}`);
  lines.push(`prior = fsp.Prior(kernel${meanArgument(mean)})`);
  lines.push(`likelihood = fsp.likelihoods.Gaussian(scale=${number(noise)})`);
  return lines.join("\n") + "\n";
}

/**
 * The command that fits the table with this kernel, its parameters kept, or null if `fsplaplace fit` has no name for it.
 * `inputs` are the names of the kernel's columns; `all` says whether the table has no other columns, `dropMissing` whether rows lack a value in these.
 */
export function copiedCommand({ kernel, file, target, inputs = ["x"], all = true, dropMissing = false }) {
  const written = commandKernel(kernel, inputs);
  if (written === null) return null;
  const chosen = all ? [] : inputs.some((name) => name.includes(",")) ? inputs : [inputs.join(",")];
  const features = chosen.map((names) => ` --features ${quoted(names)}`).join("");
  return `fsplaplace fit ${quoted(file)} --target ${quoted(target)}${features}${dropMissing ? " --drop-missing" : ""} --kernel ${quoted(written)}`;
}

/** Whether the command leaves length scales to `fsplaplace fit`, which has one number for all inputs of a kernel that is no RBF. */
export function leavesLengths(kernel) {
  if (kernel.parts) return kernel.parts.some(leavesLengths);
  return kernel.kind !== "RBF" && Array.isArray(kernel.lengthscale);
}

/** The kernel in the language of `--kernel`, null if that has no words for it. */
function commandKernel(kernel, inputs, inProduct = false) {
  if (kernel.parts) {
    const parts = kernel.parts.map((part) => commandKernel(part, inputs, kernel.kind === "product"));
    if (parts.includes(null)) return null;
    const text = parts.join(kernel.kind === "sum" ? " + " : " * ");
    return kernel.kind === "sum" && inProduct ? `(${text})` : text;
  }
  if (!NAMES[kernel.kind]) return null;
  if (kernel.kind === "RBF" && Array.isArray(kernel.lengthscale)) {
    // A length scale for each input: an RBF is the product of one for each.
    const { lengthscale, variance, columns } = kernel;
    const one = (length, k) => ({ kind: "RBF", lengthscale: length, variance: k ? 1 : variance, columns: [columns?.[k] ?? k] });
    return commandKernel({ kind: "product", parts: lengthscale.map(one) }, inputs);
  }
  const [name, ...parameters] = NAMES[kernel.kind];
  const columns = (kernel.columns ?? []).map((k) => inputs[k]);
  // Inside quotes there is no way to write a quote.
  if (columns.some((column) => column.includes('"'))) return null;
  const width = columns.length || inputs.length;
  const stated = parameters.filter((parameter) => typeof kernel[parameter] === "number" && !(parameter === "period" && width > 1));
  const written = [...stated.map((parameter) => `${parameter}=${kernel[parameter]}`), ...columns.map((column) => `"${column}"`)];
  return written.length ? `${name}(${written.join(", ")})` : name;
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
