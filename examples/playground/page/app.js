// Connects the parts of the page.

import { byId, debounce, make, setText } from "./dom.js";
import { Lane, copy, together } from "./lane.js";
import { Live } from "./live.js";
import { Policies } from "./policies.js";
import { FIELDS, PRESETS, SCENES, fromFragment, toFragment } from "./setting.js";
import { WhatIf } from "./what-if.js";

let lanes = [];
let checked = [];
let isRunning = false;
const sliders = {};

const live = new Live(
  ({ at, lanes: samples }) => lanes.forEach((lane) => lane.add(at, together(lane.routes.map((route) => samples[route])))),
  () => {
    isRunning = false;
    showButtons();
    setText(byId("status"), "The server has ended the run. Press Start for a new one.");
  });

/** A slider and a number for each field of the traffic. */
function addSliders() {
  for (const [name, label, max, first, min] of FIELDS) {
    const range = make("input", { type: "range", id: name, min, max, value: first });
    const number = make("input", { type: "number", min, max, value: first, "aria-label": `${label}, as a number` });
    range.addEventListener("input", () => { number.value = range.value; edited(); });
    number.addEventListener("input", () => { range.value = number.value; edited(); });
    sliders[name] = { range, number };
    byId("traffic").append(make("div", {},
      make("label", { htmlFor: name, textContent: label }),
      make("div", { className: "line" }, range, number)));
  }
}

/** A button for each traffic to begin with, which starts it. */
function addPresets() {
  const usual = Object.fromEntries(FIELDS.map(([name, , , first]) => [name, first]));
  for (const [label, fields] of PRESETS) {
    const button = make("button", { type: "button", textContent: label });
    button.addEventListener("click", () => {
      setTraffic({ ...usual, ...fields });
      remember();
      start();
    });
    byId("presets").append(button);
  }
}

function setTraffic(traffic) {
  for (const [name] of FIELDS) {
    sliders[name].range.value = sliders[name].number.value = traffic[name];
  }
}

/** The traffic as the server reads it. */
function traffic() {
  return Object.fromEntries(FIELDS.map(([name]) => [name, wholeNumber(sliders[name].number.value)]));
}

/** The server refuses such a number with a sentence that names what is allowed. */
function wholeNumber(text) {
  return /^\d{1,15}$/.test(text) ? Number(text) : Number.MAX_SAFE_INTEGER;
}

function setting() {
  return { policies: policies.texts(), traffic: traffic(), scene: byId("scene").value };
}

const edited = () => {
  remember();
  applySoon();
};
const remember = () => history.replaceState(null, "", toFragment(setting()));
const applySoon = debounce(100, () => { if (isRunning) apply(traffic()); });

/** Starts or changes the traffic, or says what is wrong with it. */
async function apply(wanted) {
  try {
    if (live.run === undefined) await open();
    await live.setTraffic(wanted);
    setText(byId("traffic-error"), "");
    return true;
  } catch (error) {
    setText(byId("traffic-error"), error.message);
    return false;
  }
}

/** A new run with the valid policies, and its cards. */
async function open() {
  const scene = byId("scene").value;
  const { run, names } = await live.open(checked.map((one) => one.line), scene);
  const address = (route) => new URL(`api/runs/${run}/lanes/${route}`, location.href).href;
  lanes = names.map((name, at) => new Lane(name, checked[scene === "policies" ? at : 0], [at], address(at)));
  if (names.length > 3 && scene !== "policies") {
    lanes.splice(1, 0, new Lane("Three machines together", checked[0], [1, 2, 3], address(1)));
  }
  byId("lanes").replaceChildren(...lanes.map((lane) => lane.card));
  const [, about, events] = SCENES[scene];
  setText(byId("about"), about);
  byId("events").replaceChildren(...events.map(([event, textContent]) => {
    const button = make("button", { type: "button", id: event, textContent });
    button.addEventListener("click", () => happen(event, textContent));
    return button;
  }));
}

async function happen(event, text) {
  try {
    await live.happens(event);
    for (const lane of lanes) lane.mark();
    setText(byId("status"), `${text}: done. Numbers in brackets count from here.`);
  } catch (error) {
    setText(byId("status"), error.message);
  }
}

async function policiesChanged(valid) {
  if (valid.length === checked.length && valid.every((one, at) => one.line === checked[at].line)) return;
  checked = valid;
  await reopen();
}

async function reopen() {
  try {
    await open();
  } catch (error) {
    setText(byId("status"), error.message);
    return;
  }
  if (isRunning) await apply(traffic());
}

function showButtons() {
  byId("start").disabled = isRunning;
  byId("stop").disabled = !isRunning;
}

async function start() {
  if (!(await apply(traffic()))) return;
  isRunning = true;
  showButtons();
  setText(byId("status"), "The traffic is running.");
}

byId("start").addEventListener("click", async () => {
  await start();
  if (isRunning) byId("stop").focus();
});

byId("stop").addEventListener("click", async () => {
  await apply(null);
  isRunning = false;
  showButtons();
  byId("start").focus();
  setText(byId("status"), ["The traffic has stopped.", ...lanes.map((lane) => lane.summary())].join(" "));
});

for (const [id, important] of [["one", false], ["one-important", true]]) {
  byId(id).addEventListener("click", async () => {
    try {
      if (live.run === undefined) await open();
      await live.sendOne(traffic().cost, important);
      setText(byId("traffic-error"), "");
    } catch (error) {
      setText(byId("traffic-error"), error.message);
    }
  });
}

byId("link").addEventListener("click", (event) => copy(event.currentTarget, location.href));

addPresets();
addSliders();
byId("scene").append(...Object.entries(SCENES).map(([value, [textContent]]) => make("option", { value, textContent })));
byId("scene").addEventListener("change", () => {
  remember();
  reopen();
});
const first = fromFragment(location.hash);
setTraffic(first.traffic);
byId("scene").value = first.scene;
const policies = new Policies(first.policies, remember, policiesChanged);
new WhatIf(setting);

// A link that is opened in the same tab.
addEventListener("hashchange", () => {
  const wanted = fromFragment(location.hash);
  setTraffic(wanted.traffic);
  if (byId("scene").value !== wanted.scene) {
    byId("scene").value = wanted.scene;
    checked = [];
  }
  policies.set(wanted.policies);
  applySoon();
});
