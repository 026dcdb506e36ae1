// Which columns are looked at: from a table (or none) to rows, their summary and a first state.

import { firstState } from "./state.mjs";
import { emptyPlane, summarise } from "./summary.mjs";
import { TableError, rowsOf } from "./table.mjs";

/** Most inputs: each has a slider for its length scale. */
export const MOST_INPUTS = 8;

/**
 * A table as {table, rows, summary, state, remarks}. `wanted`, a state from an address, is kept if the table has its columns;
 * `targets` are the names asked for. What could not be had is said in `remarks`.
 */
export function withTable(table, { targets = null, wanted = null } = {}) {
  const names = table.columns.map(({ name }) => name), has = (name) => names.includes(name), possible = targetNames(table), remarks = [];
  if (wanted && [...wanted.inputs, ...wanted.targets].every(has)) return { ...withColumns(table, wanted.inputs, wanted.targets, wanted.mode, wanted), remarks };
  if (wanted) remarks.push(`this link was made with other data: ${table.file} has not all of its columns`);
  const missing = (targets ?? []).filter((name) => !possible.includes(name));
  if (missing.length) remarks.push(`“${missing.join("”, “")}” is no column of numbers and cannot be the target; ${possible[possible.length - 1]} is`);
  const chosen = targets && !missing.length ? targets : possible.slice(-1);
  const mode = chosen.length === 2 ? "field" : "function", inputs = names.filter((name) => !chosen.includes(name));
  const most = mode === "field" ? 2 : MOST_INPUTS;
  if (inputs.length > most) remarks.push(`${table.file} has ${inputs.length} possible inputs; the first ${most} are chosen, others can be under Data`);
  return { ...withColumns(table, inputs.slice(0, most), chosen, mode), remarks };
}

/** The same with these columns; an error in words if that cannot be. */
export function withColumns(table, inputs, targets, mode, wanted = null) {
  if (!inputs.length) throw new TableError("choose at least one input");
  if (inputs.length > MOST_INPUTS) throw new TableError(`choose at most ${MOST_INPUTS} inputs: each has a slider`);
  if (mode === "field" && (inputs.length !== 2 || new Set(targets).size !== 2)) throw new TableError("a vector field needs two inputs and two different targets");
  const units = inputs.map((name) => table.columns.find((column) => column.name === name).unit ?? name);
  const rows = rowsOf(table, inputs, targets), summary = summarise(rows, inputs, targets, units);
  return { table, rows, summary, state: wanted ?? firstState(mode, summary), remarks: [] };
}

/** The other mode for the same table: the columns in their order. */
export function withMode(table, mode) {
  const names = table.columns.map(({ name }) => name), possible = targetNames(table);
  if (mode === "field" && (names.length < 4 || possible.length < 2)) throw new TableError("a vector field needs four columns of numbers: two for the place, two for the arrow");
  const targets = mode === "field" ? [...possible.filter((name) => names.indexOf(name) >= 2), ...possible].slice(0, 2) : possible.slice(-1);
  const inputs = names.filter((name) => !targets.includes(name));
  return withColumns(table, inputs.slice(0, mode === "field" ? 2 : MOST_INPUTS), targets, mode);
}

/** Columns that can be predicted: all but dates. */
export function targetNames(table) {
  return table.columns.filter(({ unit }) => unit === null).map(({ name }) => name);
}

/** No data: the prior alone. */
export function withoutTable(mode, wanted = null) {
  const summary = mode === "field" ? emptyPlane() : summarise(null), remarks = [];
  if (wanted && wanted.inputs.length !== summary.width) {
    remarks.push("this link was made with data that are not here; it shows a prior of one input instead");
    wanted = null;
  }
  if (wanted) Object.assign(summary, { inputs: wanted.inputs, units: wanted.inputs, targets: wanted.targets });
  return { table: null, rows: null, summary, state: wanted ?? firstState(mode, summary), remarks };
}
