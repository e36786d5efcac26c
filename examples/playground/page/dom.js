// Makes elements, and calls the server.

/** An element with properties and children. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "for" || key === "list") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

/** An SVG element with attributes and children. */
export function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Changes the text only if it differs, so that screen readers do not read it again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Calls the server. Returns its JSON, or throws an error with the faults of each field. */
export async function call(path, body) {
  let response;
  try {
    response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new CallError([{ field: "server", message: "The server cannot be reached: is it still running?" }]);
  }
  const text = await response.text();
  if (response.ok) return text === "" ? null : JSON.parse(text);
  throw new CallError(faultsIn(text, response.status));
}

function faultsIn(text, status) {
  try {
    return JSON.parse(text).faults;
  } catch {
    return [{ field: "server", message: `The server returned status ${status}.` }];
  }
}

export class CallError extends Error {
  constructor(faults) {
    super(faults.map((fault) => fault.message).join(" "));
    this.faults = faults;
  }
}

/** Calls `action` once `pause` milliseconds have passed without another call. */
export function debounce(pause, action) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, pause);
  };
}

/** A table with a header row; its first column names the row. */
export function table(caption, columns, rows) {
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col", textContent: name })));
  const body = rows.map(([first, ...rest]) => make("tr", {},
    make("th", { scope: "row", textContent: first }),
    ...rest.map((value) => make("td", { textContent: value }))));
  return make("table", {},
    make("caption", { className: "hidden", textContent: caption }),
    make("thead", {}, head),
    make("tbody", {}, ...body));
}

/** Milliseconds as text. */
export function span(ms) {
  if (ms < 1_000) return `${ms} ms`;
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  return ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}

/** A box that scrolls sideways if its content is too wide, with the keyboard as well. */
export function scrolling(name, ...children) {
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": name }, ...children);
}
