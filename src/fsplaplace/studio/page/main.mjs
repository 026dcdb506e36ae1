// The page: one state, changed by every control, drawn at most once for each frame of the screen.

import { numbersOf } from "./agreement.mjs";
import { drawBars } from "./bars.mjs";
import { candidates } from "./candidates.mjs";
import { builder } from "./controls.mjs";
import { MOST_INPUTS, showData } from "./datapanel.mjs";
import { announce, complain, element, find, quiet, refill } from "./dom.mjs";
import { EXAMPLES } from "./examples.mjs";
import { bestPeriod, fitByEvidence } from "./fit.mjs";
import { readable, rounded } from "./numbers.mjs";
import { computePicture, functionsOf } from "./picture.mjs";
import { logEvidence } from "./process.mjs";
import { copiedCommand, copiedPython } from "./python.mjs";
import { applyAnswer, questionFields } from "./questions.mjs";
import { drawScene, forgetLimits } from "./scene.mjs";
import { describe, nameOf } from "./sentences.mjs";
import { mustBePositive, slider } from "./slider.mjs";
import { firstState, fromHash, kernelOf, slotsOf, termsOf, toHash } from "./state.mjs";
import { emptyPlane, summarise } from "./summary.mjs";
import { readTable, rowsOf } from "./table.mjs";

const page = { state: null, summary: null, table: null, rows: null, picture: null, turn: 0, playing: false, fitted: new Map(), bars: [], fitting: null };
const times = [];
const given = JSON.parse(find("given").textContent);

// ---- data -------------------------------------------------------------------------------------------------------------------

/** Shows a table; the state is a fresh one unless `wanted` (from the address) fits the table. */
function useTable(table, { targets = null, wanted = null } = {}) {
  const names = table.columns.map(({ name }) => name);
  if (wanted && [...wanted.inputs, ...wanted.targets].every((name) => names.includes(name))) {
    choose(table, wanted.inputs, wanted.targets, wanted.mode, wanted);
    return;
  }
  const chosen = targets ?? [names[names.length - 1]];
  const inputs = names.filter((name) => !chosen.includes(name));
  const mode = chosen.length === 2 ? "field" : "function";
  if (inputs.length > MOST_INPUTS) table.notes.push(`${inputs.length} inputs: the first ${MOST_INPUTS} are chosen; choose others below`);
  choose(table, inputs.slice(0, mode === "field" ? 2 : MOST_INPUTS), chosen, mode);
}

/** Takes these columns as inputs and targets; complains and changes nothing if that cannot be. */
function choose(table, inputs, targets, mode, wanted = null) {
  try {
    if (!inputs.length) throw new Error("choose at least one input");
    if (inputs.length > MOST_INPUTS) throw new Error(`choose at most ${MOST_INPUTS} inputs: each has a slider`);
    if (mode === "field" && (inputs.length !== 2 || new Set(targets).size !== 2)) throw new Error("a vector field needs two inputs and two different targets");
    const rows = rowsOf(table, inputs, targets), summary = summarise(rows, inputs, targets);
    Object.assign(page, { table, rows, summary, state: wanted ?? firstState(mode, summary) });
    page.fitted.clear();
    forgetLimits();
    quiet();
    structure();
  } catch (error) {
    complain(error.message);
    if (page.state) structure();
  }
}

/** No data: the prior alone. */
function useNothing(mode, wanted = null) {
  const summary = mode === "field" ? emptyPlane() : summarise(null, [], 1);
  if (wanted && wanted.inputs.length !== summary.width) {
    complain("this link was made with data that are not here; it shows a prior of one input instead");
    wanted = null;
  }
  if (wanted) Object.assign(summary, { inputs: wanted.inputs, targets: wanted.targets });
  Object.assign(page, { table: null, rows: null, summary, state: wanted ?? firstState(mode, summary) });
  page.fitted.clear();
  forgetLimits();
  structure();
}

async function readFile(file) {
  try {
    useTable(readTable(await file.text(), file.name));
  } catch (error) {
    complain(error.message);
  }
}

function switchMode(mode) {
  if (!page.table) useNothing(mode);
  else {
    const names = page.table.columns.map(({ name }) => name);
    if (mode === "field" && names.length < 4) {
      complain("a vector field needs four columns of numbers: two for the place, two for the arrow");
      structure();
    } else if (mode === "field") choose(page.table, names.slice(0, 2), names.slice(2, 4), mode);
    else choose(page.table, names.slice(0, -1).slice(0, MOST_INPUTS), names.slice(-1), mode);
  }
}

// ---- changes ----------------------------------------------------------------------------------------------------------------

/** Changes the state; `rebuild` if the controls themselves change, not only a number in one. */
function edit(change, rebuild) {
  const next = structuredClone(page.state);
  change(next);
  if (!slotsOf(next).some((slot) => next[slot].length)) {
    complain("a prior needs at least one kernel; add another before you remove the last");
    structure();
    return;
  }
  page.state = next;
  stopFit();
  quiet();
  if (rebuild) structure();
  else later();
}

/** Builds the controls anew, then draws. */
function structure() {
  const { state, summary, rows, table } = page;
  refill(find("slots"), ...builder(state, summary, { edit, refuse: complain }));
  refill(find("noise"), ...noiseControls());
  refill(find("question-form"), ...questionFields(state, summary, { refuse: complain, answer: (name, number) => edit((next) => applyAnswer(next, summary, name, number), true) }));
  refill(find("slices-body"), ...sliceControls());
  find("slices").hidden = state.mode === "field" || summary.width === 1;
  showData({ table, rows, state, summary, mode: switchMode, close: () => useNothing(page.state.mode),
    choose: (inputs, targets) => choose(page.table, inputs, targets, page.state.mode) });
  find("posterior-figure").hidden = !rows;
  find("pictures").classList.toggle("single", !rows);
  find("pictures").classList.toggle("field", state.mode === "field");
  find("evidence").hidden = !rows;
  find("fit").disabled = !rows;
  find("fit").title = rows ? "" : "needs data";
  find("draws").value = String(state.draws);
  find("fit-result").textContent = "";
  later();
}

function noiseControls() {
  const { state, summary } = page, unit = `in ${summary.targets.join(", ")}`;
  const noise = slider({ id: "noise-slider", label: "noise (standard deviation)", unit, value: state.noise, limits: [summary.size / 1000, 3 * summary.size], check: mustBePositive, refuse: complain, change: (x) => edit((next) => (next.noise = x), false) });
  const means = state.mean.map((value, q) => {
    const size = 3 * summary.size, centre = summary.mean[q];
    return slider({ id: `mean-${q}`, label: state.mean.length > 1 ? `mean of ${summary.targets[q]}` : "mean", unit: `in ${summary.targets[q]}`, value, linear: true, limits: [Math.min(0, centre - size), Math.max(0, centre + size)], check: () => null, refuse: complain, change: (x) => edit((next) => (next.mean[q] = x), false) });
  });
  return [noise, ...means].map(({ root }) => root);
}

function sliceControls() {
  const { state, summary } = page;
  if (summary.width === 1) return [];
  const axis = element("div", { class: "row" }, element("label", { for: "axis" }, "Draw along "), element("select", { id: "axis", on: {
    change: (event) => edit((next) => (next.axis = Number(event.target.value)), true),
  } }, ...summary.inputs.map((name, k) => element("option", { value: k, selected: k === state.axis }, name))));
  const others = summary.inputs.map((name, k) => k === state.axis ? null : slider({ id: `at-${k}`, label: `at ${name}`, unit: "", value: state.at[k], linear: true, limits: [summary.low[k], summary.high[k] > summary.low[k] ? summary.high[k] : summary.low[k] + 1], check: () => null, refuse: complain, change: (x) => edit((next) => (next.at[k] = x), false) }).root);
  return [axis, ...others.filter(Boolean)];
}

// ---- drawing ----------------------------------------------------------------------------------------------------------------

let waiting = 0;

/** Draws with the next frame; many changes before it are one. */
function later() {
  if (!waiting) waiting = requestAnimationFrame(draw);
}

function draw() {
  waiting = 0;
  const start = performance.now(), { state, summary, rows } = page;
  page.picture = computePicture(state, summary, rows);
  const moving = page.picture.prior ? drawScene(page.picture, state, summary, rows, page.turn) : false;
  words();
  times.push(performance.now() - start);
  if (times.length > 500) times.shift();
  if (moving) requestAnimationFrame(settle);
  afterwards();
}

/** Axes that are still moving: only the canvases are drawn. */
function settle() {
  if (waiting || page.playing) return;
  if (drawScene(page.picture, page.state, page.summary, page.rows, page.turn)) requestAnimationFrame(settle);
}

/** Everything in words that follows from the numbers just drawn. */
function words() {
  const { state, summary, rows, picture } = page;
  const said = describe(picture.kernel, state.mean, rows, summary.width), lines = [];
  if (picture.fault) lines.push(`This prior cannot be drawn: ${picture.fault}. Move a parameter, or add noise.`);
  const jitter = Math.max(picture.given?.jitter ?? 0, picture.prior?.factor.jitter > 1e-8 ? picture.prior.factor.jitter : 0);
  if (jitter > 0) lines.push(`Rounding made the covariance matrix not positive definite; ${jitter} of its mean was added to its diagonal. More noise or a shorter length scale avoids that.`);
  const paragraphs = [...said.sentences.map((text) => element("p", {}, capital(text))), ...[...said.warnings, ...lines].map((text) => element("p", { class: "warning" }, capital(text)))];
  find("sentences").replaceChildren(...paragraphs);
  find("formula").textContent = nameOf(picture.kernel).replace(/^\((.*)\)$/, "$1");
  find("python").textContent = copiedPython({ kernel: picture.kernel, mean: state.mean, noise: state.noise, columns: summary.inputs });
  const file = page.table?.file ?? "DATA.csv";
  const command = state.mode === "field" ? null : copiedCommand({ kernel: picture.kernel, file, target: state.targets[0] });
  find("command").textContent = command ?? "# `fsplaplace fit` has no name for this kernel: use the Python lines.";
  find("copy-command").disabled = !command;
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}

let idle = 0;

/** What may come after the picture: the address, the screen reader, and one candidate's evidence at a time. */
function afterwards() {
  clearTimeout(idle);
  const own = page.picture.given?.logEvidence ?? NaN;
  if (page.rows) startBars(own);
  announce(`${find("formula").textContent}. ${Number.isFinite(own) ? `Log evidence ${readable(own, 5)}. ` : ""}${find("sentences").lastElementChild?.textContent ?? ""}`);
  idle = setTimeout(() => {
    try {
      history.replaceState(null, "", toHash(page.state));
    } catch {
      // A sandboxed frame has no address of its own; the page works without.
    }
  }, 250);
}

let round = 0;

function startBars(own) {
  const { state, summary, rows } = page, mine = ++round, before = new Map(page.bars.map((bar) => [bar.id, bar.value]));
  page.bars = candidates(state, summary).map((candidate) => ({ ...candidate, ...page.fitted.get(candidate.id), fitted: page.fitted.has(candidate.id), value: before.get(candidate.id) ?? null }));
  Object.assign(page.bars[0], { value: own, kernelName: nameOf(page.bars[0].kernel).replace(/^\((.*)\)$/, "$1") });
  find("evidence-note").textContent = `Log evidence (in nats) of ${rows.numRows} rows: higher is better, and 3 more means twenty times likelier. ` +
    (page.fitted.size ? "◆ at its own best parameters; the others" : "All") + " with the length scale, size, noise and mean set now. Click a kernel to use it.";
  drawBars(page.bars, adopt);
  const queue = page.bars.slice(1);
  const next = () => {
    if (mine !== round || !queue.length) return;
    const bar = queue.shift();
    if (bar.fitted) bar.value = bar.logEvidence;
    else {
      try {
        bar.value = logEvidence(bar.kernel, rows, state.mean, state.noise ** 2);
      } catch {
        bar.value = NaN;
      }
    }
    drawBars(page.bars, adopt);
    setTimeout(next, 0);
  };
  setTimeout(next, 60);
}

/** Takes a candidate's kernel; with its fitted noise and mean if it was fitted. */
function adopt(id) {
  const bar = page.bars.find((candidate) => candidate.id === id);
  if (id === "current") return;
  edit((next) => {
    if (next.mode === "field") Object.assign(next, { potential: termsOf(bar.kernel.potential), stream: termsOf(bar.kernel.stream) });
    else next.terms = termsOf(bar.kernel);
    if (bar.fitted) Object.assign(next, { noise: bar.noise, mean: bar.mean });
  }, true);
}

// ---- fitting ----------------------------------------------------------------------------------------------------------------

function stopFit() {
  if (page.fitting) page.fitting.stopped = true;
  page.fitting = null;
}

const breath = () => new Promise((resolve) => setTimeout(resolve, 0));

/** The best parameters of a kernel, rounded so that what is shown is what is computed with. */
async function best(kernel, token, progress) {
  const { summary, rows, state } = page, size = summary.size ** 2;
  const limits = (name, value) => ({
    noise: [1e-3 * summary.size, 3 * summary.size], lengthscale: [value / 300, value * 300], power: [0.2, 2], alpha: [0.02, 100],
    period: [Math.max(value / 20, 2 * Math.min(...summary.spacing)), value * 20],
  })[name] ?? [Math.min(value, size) * 1e-5, Math.max(value, size) * 1e5];
  const found = await fitByEvidence({ kernel: bestPeriod(kernel, rows, state.mean, Math.max(state.noise, 0.2 * summary.size), summary), noise: state.noise, data: rows, limits, pause: async (steps, value) => {
    progress(steps, value);
    await breath();
    return !token.stopped;
  } });
  const tidy = (part) => Object.fromEntries(Object.entries(part).map(([name, value]) => [name,
    name === "parts" ? value.map(tidy) : name === "potential" || name === "stream" ? value && tidy(value)
      : Array.isArray(value) ? (name === "columns" ? value : value.map((x) => rounded(x, 5))) : typeof value === "number" ? rounded(value, 5) : value]));
  const tidied = { kernel: tidy(found.kernel), noise: rounded(found.noise, 5), mean: found.mean.map((x) => rounded(x, 6)), steps: found.steps };
  return { ...tidied, logEvidence: logEvidence(tidied.kernel, rows, tidied.mean, tidied.noise ** 2) };
}

async function fit() {
  stopFit();
  const token = (page.fitting = { stopped: false }), before = page.picture.given?.logEvidence ?? NaN;
  find("fit").disabled = true;
  try {
    const found = await best(kernelOf(page.state), token, (steps, value) => (find("fit-result").textContent = `step ${steps}: log evidence ${readable(value, 5)}`));
    if (token.stopped) return;
    edit((next) => {
      if (next.mode === "field") Object.assign(next, { potential: termsOf(found.kernel.potential), stream: termsOf(found.kernel.stream) });
      else next.terms = termsOf(found.kernel);
      Object.assign(next, { noise: found.noise, mean: found.mean });
    }, true);
    find("fit-result").textContent = `Fitted in ${found.steps} steps: log evidence ${readable(before, 5)} → ${readable(found.logEvidence, 5)}.`;
  } catch (error) {
    complain(error.message);
  } finally {
    find("fit").disabled = !page.rows;
  }
}

async function fitAll() {
  stopFit();
  const token = (page.fitting = { stopped: false }), rows = page.rows;
  find("fit-all").disabled = true;
  try {
    for (const { id, name, kernel } of candidates(page.state, page.summary).slice(1)) {
      find("fit-all").textContent = `Fitting ${name}…`;
      try {
        const found = await best(kernel, token, () => {});
        if (token.stopped || rows !== page.rows) return;
        page.fitted.set(id, found);
        startBars(page.picture.given?.logEvidence ?? NaN);
      } catch (error) {
        // A candidate that cannot be fitted keeps its bar as it was.
        console.debug(`${name}: ${error.message}`);
      }
    }
    const [top] = [...page.fitted].sort((a, b) => b[1].logEvidence - a[1].logEvidence);
    if (top) announce(`Every candidate is fitted. The best is ${top[0]} with log evidence ${readable(top[1].logEvidence, 5)}.`);
  } finally {
    find("fit-all").disabled = false;
    find("fit-all").textContent = "Fit every candidate";
  }
}

// ---- the rest of the page ---------------------------------------------------------------------------------------------------

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without leave to write to the clipboard: the old way, by a selection.
    const area = element("textarea", { class: "hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  find("copied").textContent = `${what} copied.`;
}

function play() {
  page.playing = !page.playing;
  find("play").setAttribute("aria-pressed", String(page.playing));
  find("play").textContent = page.playing ? "Stop" : "Animate";
  let last = performance.now();
  const frame = (now) => {
    if (!page.playing) return;
    // A full circle of functions in twenty seconds.
    page.turn += ((now - last) / 20000) * 2 * Math.PI;
    last = now;
    if (page.picture.prior) drawScene(page.picture, page.state, page.summary, page.rows, page.turn);
    requestAnimationFrame(frame);
  };
  if (page.playing) requestAnimationFrame(frame);
}

function theme(name) {
  const dark = name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  if (page.picture?.prior) drawScene(page.picture, page.state, page.summary, page.rows, page.turn);
}

function connect() {
  find("file").addEventListener("change", (event) => {
    if (event.target.files[0]) readFile(event.target.files[0]);
    event.target.value = "";
  });
  find("example").replaceChildren(element("option", { value: "" }, "Example data (made up)…"), ...EXAMPLES.map(({ name }, k) => element("option", { value: k }, name)));
  find("example").addEventListener("change", (event) => {
    const example = EXAMPLES[event.target.value];
    if (example) useTable(readTable(example.make(), `${example.name}.csv`.replaceAll(" ", "-")), { targets: example.targets });
    event.target.value = "";
  });
  find("theme").addEventListener("change", (event) => theme(event.target.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme(find("theme").value));
  find("fit").addEventListener("click", fit);
  find("fit-all").addEventListener("click", fitAll);
  find("reset").addEventListener("click", () => edit((next) => Object.assign(next, firstState(next.mode, page.summary)), true));
  find("play").addEventListener("click", play);
  find("redraw").addEventListener("click", () => edit((next) => (next.seed += 1), false));
  find("draws").addEventListener("change", (event) => {
    const number = Number(event.target.value);
    if (Number.isInteger(number) && number >= 1 && number <= 20) edit((next) => (next.draws = number), false);
    else complain(`the number of functions is ${event.target.value || "empty"}; it must be a whole number from 1 to 20`);
  });
  find("question-form").addEventListener("submit", (event) => event.preventDefault());
  find("copy-python").addEventListener("click", () => copy(find("python").textContent, "Python lines"));
  find("copy-command").addEventListener("click", () => copy(find("command").textContent, "Command"));
  find("copy-link").addEventListener("click", () => copy(location.href.split("#")[0] + toHash(page.state), "Link"));
  window.addEventListener("hashchange", () => start());
  new ResizeObserver(() => page.picture?.prior && drawScene(page.picture, page.state, page.summary, page.rows, page.turn)).observe(find("pictures"));
  const over = (open) => (event) => {
    event.preventDefault();
    find("drop").classList.toggle("open", open);
  };
  window.addEventListener("dragenter", over(true));
  window.addEventListener("dragover", over(true));
  window.addEventListener("dragleave", (event) => event.relatedTarget === null && over(false)(event));
  window.addEventListener("drop", (event) => {
    over(false)(event);
    if (event.dataTransfer?.files[0]) readFile(event.dataTransfer.files[0]);
  });
}

/** Shows what the address holds; else the data that the page was made with; else the prior alone. */
function start() {
  let wanted = null;
  try {
    wanted = fromHash(location.hash);
  } catch (error) {
    complain(error.message);
  }
  const table = page.table ?? (given && readTable(given.text, given.file, given.rows));
  if (table) useTable(table, { targets: given?.targets, wanted });
  else useNothing(wanted?.mode ?? "function", wanted);
}

/** One function that a kernel of one input draws, with the page's own noise. */
function drawn(kernel) {
  const state = { ...page.state, terms: [[kernel]] };
  return [...functionsOf(computePicture(state, page.summary, null).prior, 1, state.seed)[0]];
}

connect();
theme("auto");
start();
// For the tests, and for the curious in the console: the numbers behind the page.
window.studio = { numbersOf, drawn, times, read: () => structuredClone(page.state), evidence: () => page.picture.given?.logEvidence ?? null, bars: () => page.bars.map(({ id, value, fitted }) => ({ id, value, fitted })) };
