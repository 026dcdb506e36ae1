// The page's numbers for the cases of a JSON file, as JSON on the standard output: node agreement.mjs PAGE_FOLDER CASES.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, cases] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${folder}/${name}.mjs`).href);
const { numbersOf } = await load("agreement");
const answers = JSON.parse(readFileSync(cases, "utf8")).map(numbersOf);
console.log(JSON.stringify(answers));
