// Text to the clipboard.

import { element, find } from "./dom.mjs";

/** Copies a text and says so; `what` names it. */
export async function copyText(text, what) {
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
