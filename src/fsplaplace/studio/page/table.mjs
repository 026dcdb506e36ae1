// A CSV file as columns of numbers, with a word on everything that was left out.

import { sampleOf } from "./random.mjs";

// Most rows that evidence and posterior use, and most that are drawn.
export const MOST_ROWS = 300;
export const MOST_SHOWN = 2000;
// Dates become years of equal length, as `fsplaplace fit` reads them.
const DAYS_PER_YEAR = 365.2425;
const DATE = /^(\d{4}-\d{2})(-\d{2})?(?:[T ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?)(Z|[+-]\d{2}:?\d{2})?)?$/;

// 1,234 is a thousand and more to some, a little more than one to others; 1/2/2020 is in January to some, in February to others.
const COMMA = /^[+-]?\d+,\d+$/, THOUSANDS = /^[+-]?[1-9]\d{0,2},\d{3}$/, UNSURE_DATE = /^\d{1,2}([./-])\d{1,2}\1\d{2,4}\b/;

/** A file that cannot be used; its message says why and what to do. */
export class TableError extends Error {}

/**
 * Reads a CSV with a header: {file, columns: [{name, values, unit}], width, rows, notes}, width counting all columns. Cells that are not numbers are NaN; a
 * column of ISO dates is one of years; columns that are mostly text are left out, and `notes` says so. `totalRows` is the size of the file that these rows were
 * sampled from.
 */
export function readTable(text, file, totalRows = null) {
  const lines = cells(text.replace(/^\uFEFF/, ""));
  if (!lines.length) throw new TableError(`${file} is empty; choose a CSV file with a header and rows of numbers`);
  const notes = [];
  let [header, ...rows] = lines;
  if (header.every((cell) => Number.isFinite(numberIn(cell)))) {
    rows = lines;
    header = header.map((_, k) => `column ${k + 1}`);
    notes.push(`${file} has no header, so its columns are called column 1, column 2, …`);
  }
  const whole = rows.filter((row) => row.length === header.length);
  if (whole.length < rows.length) notes.push(`${count(rows.length - whole.length, "row")} had another number of cells than the header and ${were(rows.length - whole.length)} left out`);
  if (!whole.length) throw new TableError(`${file} has a header but no rows that match it`);
  const names = uniqueNames(header), columns = [];
  names.forEach((name, k) => {
    const given = whole.filter((row) => row[k].trim() !== "").length;
    const read = [numberIn, yearsIn].map((reader) => Float64Array.from(whole, (row) => reader(row[k])));
    const found = read.findIndex((values) => values.some(Number.isFinite) && 2 * values.filter(Number.isFinite).length >= given);
    if (found >= 0) columns.push({ name, values: read[found], unit: found ? "years" : null });
    if (found === 1) notes.push(`column “${name}” holds dates, shown as years`);
    if (found < 0) notes.push(`column “${name}” ${leftOut(whole.map((row) => row[k].trim()).filter((cell) => cell !== ""))}`);
  });
  if (columns.length < 2) {
    throw new TableError([`${file} has ${count(columns.length, "column")} of numbers; a prior needs at least one input and one target`, ...notes].join("; "));
  }
  if (columns.every(({ unit }) => unit)) throw new TableError(`${file} has dates but no column of numbers; a prior needs a target`);
  const thousands = whole.flat().filter((cell) => COMMA.test(cell.trim()));
  if (thousands.length && thousands.every((cell) => THOUSANDS.test(cell.trim()))) {
    notes.push(`“${thousands[0].trim()}” is read as ${numberIn(thousands[0])}: if it is more than a thousand, write it without a comma`);
  }
  return { file, columns, width: header.length, rows: whole.length, totalRows: totalRows ?? whole.length, notes };
}

/**
 * The rows that have numbers in all chosen columns: {x, width, y} for computing (at most MOST_ROWS), the same with more rows
 * for drawing as `shown`, and `notes` on what was left out. `inputs` and `targets` are names of columns.
 */
export function rowsOf(table, inputs, targets) {
  const find = (name) => table.columns.find((column) => column.name === name).values;
  const chosen = [...inputs, ...targets].map(find), notes = [];
  const usable = [];
  for (let i = 0; i < table.rows; i++) if (chosen.every((values) => Number.isFinite(values[i]))) usable.push(i);
  const dropped = table.rows - usable.length;
  if (dropped) notes.push(`${count(dropped, "row")} without a number in every chosen column ${were(dropped)} left out`);
  if (usable.length < 2) throw new TableError(`only ${count(usable.length, "row")} of ${table.file} ${usable.length === 1 ? "has" : "have"} numbers in all chosen columns; choose other columns`);
  const used = pick(usable, MOST_ROWS), shown = pick(usable, MOST_SHOWN);
  const total = Math.max(table.totalRows - dropped, usable.length);
  if (total > used.length) notes.push(`${thousands(total)} rows: evidence, posterior and sentences use a random sample of ${used.length}, the picture shows ${thousands(shown.length)}`);
  const take = (rows) => ({
    x: Float64Array.from(rows.flatMap((i) => inputs.map((_, k) => chosen[k][i]))),
    width: inputs.length,
    y: Float64Array.from(rows.flatMap((i) => targets.map((_, k) => chosen[inputs.length + k][i]))),
  });
  return { ...take(used), shown: take(shown), numRows: used.length, dropped, notes };
}

/** Why a column is not one of numbers, by its cells that are not empty. */
function leftOut(given) {
  if (!given.length) return "is empty and is left out";
  if (given.every((cell) => UNSURE_DATE.test(cell))) return `is left out: “${given[0]}” may be a date, which is written as 2026-01-31`;
  return "holds text and is left out here; fsplaplace fit makes it columns of zeros and ones";
}

function pick(rows, most) {
  return rows.length <= most ? rows : sampleOf(rows.length, most, 1).map((i) => rows[i]);
}

/** Rows of cells: commas, semicolons, tabs or bars, quotes around cells that hold them; blank lines and comments are skipped. */
function cells(text) {
  // Comments above the header only: further down a cell may begin with the same mark.
  text = text.replace(/^(?:[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))+/, "");
  const first = text.slice(0, text.search(/[\r\n]|$/));
  const separator = [",", ";", "\t", "|"].reduce((best, mark) => (first.split(mark).length > first.split(best).length ? mark : best), ",");
  const rows = [];
  let row = [], cell = "", quoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.some((value) => value.trim() !== "")) rows.push(row);
    row = [];
    cell = "";
  };
  for (let i = 0; i < text.length; i++) {
    const mark = text[i];
    if (quoted) {
      if (mark !== '"') cell += mark;
      else if (text[i + 1] === '"') cell += text[++i];
      else quoted = false;
    } else if (mark === '"' && cell.trim() === "") {
      cell = "";
      quoted = true;
    } else if (mark === separator) {
      row.push(cell);
      cell = "";
    } else if (mark === "\n" || mark === "\r") {
      if (mark === "\r" && text[i + 1] === "\n") i++;
      endRow();
    } else cell += mark;
  }
  endRow();
  return rows;
}

/** The number in a cell, with a point or, if nothing else fits, a comma before its decimals; NaN if it holds none. */
function numberIn(cell) {
  const text = cell.trim();
  if (text === "" || /^[+-]?0[xob]/i.test(text)) return NaN;
  const value = Number(COMMA.test(text) ? text.replace(",", ".") : text);
  return Number.isFinite(value) ? value : NaN;
}

/** The years since the year 0 of an ISO date and time, midnight and UTC where the cell says nothing else; NaN if it holds none. */
function yearsIn(cell) {
  const [whole, month, day = "-01", time = "00:00", zone = "Z"] = DATE.exec(cell.trim()) ?? [];
  if (!whole) return NaN;
  const midnight = new Date(`${month}${day}T00:00Z`);
  // JavaScript takes the 31st of February for a day in March.
  if (!Number.isFinite(midnight.getTime()) || !midnight.toISOString().startsWith(`${month}${day}`)) return NaN;
  const moment = Date.parse(`${month}${day}T${time.replace(",", ".")}${zone.replace(/(\d{2})(\d{2})$/, "$1:$2")}`);
  return 1970 + moment / 86_400_000 / DAYS_PER_YEAR;
}

function uniqueNames(header) {
  const seen = new Map();
  return header.map((cell, k) => {
    const name = cell.trim() || `column ${k + 1}`, times = seen.get(name) ?? 0;
    seen.set(name, times + 1);
    return times ? `${name} (${times + 1})` : name;
  });
}

function count(number, word) {
  return `${thousands(number)} ${word}${number === 1 ? "" : "s"}`;
}

function were(number) {
  return number === 1 ? "was" : "were";
}

function thousands(number) {
  return number.toLocaleString("en-GB");
}
