// Elements of the page. Text is always set as text, never as markup: what stands in a file or an address cannot become code.

export const find = (id) => document.getElementById(id);

/** An element with properties (`class`, `on` for listeners, attributes) and children: elements or text. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Replaces what is inside, and keeps the keyboard's place: the element with the same id has the focus again. */
export function refill(parent, ...children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement.id : null;
  parent.replaceChildren(...children.filter((child) => child !== null));
  if (focused) find(focused)?.focus({ preventScroll: true });
}

/** One line above everything else about what went wrong; it goes away with the next thing that works, or by its button. */
export function complain(...texts) {
  const lines = element("div", {}, ...texts.map((text) => element("p", {}, text)));
  find("messages").replaceChildren(lines, element("button", { type: "button", on: { click: quiet } }, "Close"));
}

export function quiet() {
  find("messages").replaceChildren();
}

let waiting = null;

/** Tells a screen reader, once nothing has moved for a moment. */
export function announce(text) {
  clearTimeout(waiting);
  waiting = setTimeout(() => (find("announce").textContent = text), 700);
}
