// The page: one state, changed by every control, drawn at most once for each frame of the screen.

import { numbersOf } from "./agreement.mjs";
import { drawBars } from "./bars.mjs";
import { candidates } from "./candidates.mjs";
import { copyText } from "./clipboard.mjs";
import { builder } from "./controls.mjs";
import { showData } from "./datapanel.mjs";
import { announce, complain, element, find, quiet, refill } from "./dom.mjs";
import { EXAMPLES } from "./examples.mjs";
import { bestParameters } from "./fitting.mjs";
import { withColumns, withMode, withTable, withoutTable } from "./loading.mjs";
import { readable } from "./numbers.mjs";
import { noiseControls, sliceControls } from "./panels.mjs";
import { computePicture, functionsOf } from "./picture.mjs";
import { logEvidence } from "./process.mjs";
import { applyAnswer, questionFields } from "./questions.mjs";
import { drawScene, forgetLimits } from "./scene.mjs";
import { firstState, fromHash, kernelOf, slotsOf, termsOf, toHash } from "./state.mjs";
import { readTable } from "./table.mjs";
import { formulaOf, showWords } from "./words.mjs";

const page = { state: null, summary: null, table: null, rows: null, picture: null, turn: 0, playing: false, fitted: new Map(), bars: [], fitting: null };
const given = JSON.parse(find("given").textContent);
const times = [];

// ---- what is looked at ------------------------------------------------------------------------------------------------------

/** Shows what `load` returns (see loading.mjs); if it fails, says why and leaves everything as it was. */
function look(load) {
  try {
    const { remarks, ...found } = load();
    stopFit();
    Object.assign(page, found);
    page.fitted.clear();
    forgetLimits();
    remarks.length ? complain(...remarks) : quiet();
    structure();
  } catch (error) {
    complain(error.message);
    if (page.state) structure();
  }
}

async function lookAtFile(file) {
  const text = await decoded(file).catch((error) => error);
  look(() => {
    if (text instanceof Error) throw new Error(`${file.name} cannot be read: ${text.message}`);
    return withTable(readTable(text, file.name));
  });
}

/** The text of a file: UTF-8, or UTF-16 as spreadsheets save it. */
async function decoded(file) {
  const bytes = new Uint8Array(await file.arrayBuffer()), start = `${bytes[0]},${bytes[1]}`;
  return new TextDecoder({ "255,254": "utf-16le", "254,255": "utf-16be" }[start] ?? "utf-8").decode(bytes);
}

/** Shows what the address holds; else the data that the page was made with; else the prior alone. */
function start() {
  let wanted = null, wrong = null;
  try {
    wanted = fromHash(location.hash);
  } catch (error) {
    wrong = error.message;
  }
  if (page.table || given) look(() => withTable(page.table ?? readTable(given.text, given.file, given.rows), { targets: page.table ? page.state.targets : given.targets, wanted }));
  else look(() => withoutTable(wanted?.mode ?? "function", wanted));
  if (!page.state) Object.assign(page, withoutTable("function")), structure();
  if (wrong) complain(wrong);
}

// ---- changes ----------------------------------------------------------------------------------------------------------------

/** Changes the state; `rebuild` if the controls themselves change, not only a number in one. */
function edit(change, rebuild) {
  const next = structuredClone(page.state);
  change(next);
  if (!slotsOf(next).some((slot) => next[slot].length)) {
    complain("a prior needs at least one kernel; add another before you remove the last");
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
  const answer = (name, number) => edit((next) => applyAnswer(next, summary, name, number), true);
  refill(find("slots"), ...builder(state, summary, { edit, refuse: complain }));
  refill(find("noise"), ...noiseControls(state, summary, edit));
  refill(find("question-form"), ...questionFields(state, summary, { answer, refuse: complain }));
  refill(find("slices-body"), ...sliceControls(state, summary, edit));
  showData({
    table, rows, state,
    choose: (inputs, targets) => look(() => withColumns(table, inputs, targets, page.state.mode)),
    mode: (mode) => look(() => (table ? withMode(table, mode) : withoutTable(mode))),
    close: () => look(() => withoutTable(page.state.mode)),
  });
  find("slices").hidden = state.mode === "field" || summary.width === 1;
  find("posterior-figure").hidden = find("evidence").hidden = !rows;
  find("pictures").classList.toggle("single", !rows);
  find("pictures").classList.toggle("field", state.mode === "field");
  find("fit").disabled = !rows;
  find("fit").title = rows ? "" : "needs data";
  find("draws").value = String(state.draws);
  find("fit-result").textContent = "";
  later();
}

/** Takes a kernel, and the noise and mean that were found with it. */
function take(kernel, found = {}) {
  edit((next) => {
    if (next.mode === "field") Object.assign(next, { potential: termsOf(kernel.potential), stream: termsOf(kernel.stream) });
    else next.terms = termsOf(kernel);
    Object.assign(next, found);
  }, true);
}

// ---- drawing ----------------------------------------------------------------------------------------------------------------

let waiting = 0, idle = 0;

/** Draws with the next frame; many changes before it are one. */
function later() {
  if (!waiting) waiting = requestAnimationFrame(draw);
}

function draw() {
  waiting = 0;
  const started = performance.now();
  page.picture = computePicture(page.state, page.summary, page.rows);
  const moving = redraw();
  showWords(page);
  times.push(performance.now() - started);
  if (times.length > 500) times.shift();
  if (moving) requestAnimationFrame(settle);
  afterwards();
}

/** The canvases alone, from numbers that are there already. */
function redraw() {
  return page.picture?.prior ? drawScene(page.picture, page.state, page.summary, page.rows, page.turn) : false;
}

/** Axes that are still moving. */
function settle() {
  if (!waiting && !page.playing && redraw()) requestAnimationFrame(settle);
}

/** What may come after the picture: bars, the screen reader, the address. */
function afterwards() {
  const own = page.picture.given?.logEvidence ?? NaN;
  if (page.rows) startBars();
  announce(`${formulaOf(page.picture.kernel)}. ${Number.isFinite(own) ? `Log evidence ${readable(own, 5)}. ` : ""}${find("sentences").lastElementChild.textContent}`);
  clearTimeout(idle);
  idle = setTimeout(() => {
    try {
      history.replaceState(null, "", toHash(page.state));
    } catch {
      // A sandboxed frame has no address of its own; the page works without.
    }
  }, 250);
}

// ---- evidence ---------------------------------------------------------------------------------------------------------------

let round = 0;

/** Evidence of every candidate, one at a time, so that a moving slider never waits for them. */
function startBars() {
  const { state, summary, rows, fitted } = page, mine = ++round, before = new Map(page.bars.map((bar) => [bar.id, bar.value]));
  page.bars = candidates(state, summary).map((candidate) => ({ ...candidate, ...fitted.get(candidate.id), fitted: fitted.has(candidate.id), value: before.get(candidate.id) ?? null }));
  Object.assign(page.bars[0], { value: page.picture.given?.logEvidence ?? NaN, kernelName: formulaOf(page.bars[0].kernel) });
  find("evidence-note").textContent = `Log evidence (in nats) of ${rows.numRows} rows: higher is better, and 3 more means twenty times likelier. ` +
    (fitted.size ? "◆ at its own best parameters; the others" : "All") + " with the length scale, size, noise and mean set now. Click a kernel to use it.";
  const queue = page.bars.slice(1), show = () => drawBars(page.bars, adopt);
  const next = () => {
    if (mine !== round || !queue.length) return;
    const bar = queue.shift();
    try {
      bar.value = bar.fitted ? bar.logEvidence : logEvidence(bar.kernel, rows, state.mean, state.noise ** 2);
    } catch {
      // The bar says that it has no value.
      bar.value = NaN;
    }
    show();
    setTimeout(next, 0);
  };
  show();
  setTimeout(next, 60);
}

function adopt(id) {
  const bar = page.bars.find((candidate) => candidate.id === id);
  if (id !== "current") take(bar.kernel, bar.fitted ? { noise: bar.noise, mean: bar.mean } : {});
}

function stopFit() {
  if (page.fitting) page.fitting.stopped = true;
  page.fitting = null;
}

async function fit() {
  stopFit();
  const token = (page.fitting = { stopped: false }), before = page.picture.given?.logEvidence ?? NaN;
  find("fit").disabled = true;
  try {
    const found = await bestParameters(kernelOf(page.state), page, token, (steps, value) => (find("fit-result").textContent = `step ${steps}: log evidence ${readable(value, 5)}`));
    if (token.stopped) return;
    take(found.kernel, { noise: found.noise, mean: found.mean });
    find("fit-result").textContent = `Fitted in ${found.steps} steps: log evidence ${readable(before, 5)} → ${readable(found.logEvidence, 5)}.`;
  } catch (error) {
    complain(error.message);
  } finally {
    find("fit").disabled = !page.rows;
  }
}

async function fitAll() {
  stopFit();
  const token = (page.fitting = { stopped: false }), button = find("fit-all");
  button.disabled = true;
  for (const { id, name, kernel } of candidates(page.state, page.summary).slice(1)) {
    button.textContent = `Fitting ${name}…`;
    const found = await bestParameters(kernel, page, token).catch(() => null);
    if (token.stopped) break;
    // A candidate that cannot be fitted keeps its bar as it was.
    if (found) page.fitted.set(id, found);
    startBars();
  }
  button.disabled = false;
  button.textContent = "Fit every candidate";
  const [top] = [...page.fitted].sort((a, b) => b[1].logEvidence - a[1].logEvidence);
  if (top && !token.stopped) announce(`Every candidate is fitted. The best is ${top[0]} with log evidence ${readable(top[1].logEvidence, 5)}.`);
}

// ---- the rest of the page ---------------------------------------------------------------------------------------------------

/** Moves through the functions, a full circle in twenty seconds. */
function play() {
  page.playing = !page.playing;
  find("play").setAttribute("aria-pressed", String(page.playing));
  find("play").textContent = page.playing ? "Stop" : "Animate";
  let last = performance.now();
  const frame = (now) => {
    if (!page.playing) return;
    page.turn += ((now - last) / 20000) * 2 * Math.PI;
    last = now;
    redraw();
    requestAnimationFrame(frame);
  };
  if (page.playing) requestAnimationFrame(frame);
}

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light", chosen = find("theme").value;
  document.documentElement.dataset.theme = chosen === "auto" ? system : chosen;
  redraw();
}

function connect() {
  const on = (id, event, listener) => find(id).addEventListener(event, listener);
  on("file", "change", ({ target }) => {
    if (target.files[0]) lookAtFile(target.files[0]);
    target.value = "";
  });
  find("example").replaceChildren(element("option", { value: "" }, "Example data (made up)…"), ...EXAMPLES.map(({ name }, k) => element("option", { value: k }, name)));
  on("example", "change", ({ target }) => {
    const example = EXAMPLES[target.value];
    if (example) look(() => withTable(readTable(example.make(), `${example.name.replaceAll(/\W+/g, "-")}.csv`), { targets: example.targets }));
    target.value = "";
  });
  on("theme", "change", theme);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
  on("fit", "click", fit);
  on("fit-all", "click", fitAll);
  on("reset", "click", () => edit((next) => Object.assign(next, firstState(next.mode, page.summary)), true));
  on("play", "click", play);
  on("redraw", "click", () => edit((next) => (next.seed += 1), false));
  on("draws", "change", ({ target }) => {
    const number = Number(target.value);
    if (Number.isInteger(number) && number >= 1 && number <= 20) edit((next) => (next.draws = number), false);
    else complain(`the number of functions is ${target.value || "empty"}; it must be a whole number from 1 to 20`);
  });
  on("question-form", "submit", (event) => event.preventDefault());
  on("copy-python", "click", () => copyText(find("python").textContent, "Python lines"));
  on("copy-command", "click", () => copyText(find("command").textContent, "Command"));
  on("copy-link", "click", () => copyText(location.href.split("#")[0] + toHash(page.state), "Link"));
  window.addEventListener("hashchange", start);
  new ResizeObserver(redraw).observe(find("pictures"));
  const over = (open) => (event) => {
    event.preventDefault();
    find("drop").classList.toggle("open", open);
  };
  window.addEventListener("dragenter", over(true));
  window.addEventListener("dragover", over(true));
  window.addEventListener("dragleave", (event) => event.relatedTarget === null && over(false)(event));
  window.addEventListener("drop", (event) => {
    over(false)(event);
    if (event.dataTransfer?.files[0]) lookAtFile(event.dataTransfer.files[0]);
  });
}

/** One function that a kernel of one input draws, with the page's own noise. */
function drawn(kernel) {
  const state = { ...page.state, terms: [[kernel]] };
  return [...functionsOf(computePicture(state, page.summary, null).prior, 1, state.seed)[0]];
}

connect();
theme();
start();
// For the tests, and for the curious in the console: the numbers behind the page.
window.studio = {
  numbersOf, drawn, times,
  read: () => structuredClone(page.state),
  evidence: () => page.picture.given?.logEvidence ?? null,
  bars: () => page.bars.map(({ id, value, fitted }) => ({ id, value, fitted })),
};
