// The card of one policy: charts, numbers, levels and windows, answers, and its code.

import { Bars, Level } from "./chart.js";
import { make, scrolling, setText, span, table } from "./dom.js";

const SECONDS = 30;
const PER_SECOND = 4;

export class Lane {
  /** The card of `routes`, of which one is at `url`. */
  constructor(name, checked, routes, url) {
    this.name = name;
    this.routes = routes;
    this.parts = checked.line.split(" + ");
    this.seconds = [];
    this.levels = [];
    this.total = { admitted: 0, queued: 0, denied: 0 };
    this.marked = undefined;
    this.longest = 0;
    this.bars = new Bars();
    this.level = new Level();
    this.numbers = {};
    this.clients = make("ul", { className: "clients" });
    this.line = make("ol", { className: "queue" });
    const id = `lane-${routes.join("-")}`;
    const queue = [make("h4", { textContent: "The line of client 1, next first" }), this.line];
    const levels = [make("h4", { textContent: "Used by client 1, in %" }), this.level.svg,
      make("h4", { textContent: "What each client may still use" }), this.clients];
    this.table = scrolling("The chart as a table");
    this.rows = make("details", {}, make("summary", { textContent: "The chart as a table" }), this.table);
    this.rows.addEventListener("toggle", () => this.showTable());
    this.admitted = this.answer("Last answer to an admitted request");
    this.denied = this.answer("Last answer to a denied request");
    this.card = make("article", { className: "card", "aria-labelledby": id },
      make("h3", { id }, name === checked.line ? make("code", { textContent: name }) : name),
      this.bars.svg, this.list(), ...(checked.line.includes("queue=") ? queue : []),
      ...(routes.length === 1 ? levels : []),
      this.rows, this.admitted.details, this.denied.details,
      code("As Rust", checked.rust), code("As TOML", checked.toml),
      make("details", {}, make("summary", { textContent: "From another program" }),
        block(`curl -i -H 'client: 1' ${url}`, "Command")));
    this.show();
  }

  list() {
    const names = [["admitted", "Admitted at once"], ["queued", "After a wait"], ["denied", "Denied"],
      ["waiting", "Waiting now"], ["mean", "Mean wait"], ["longest", "Longest wait"]];
    return make("dl", { className: "numbers" }, ...names.map(([name, label]) => {
      this.numbers[name] = make("dd", { className: name, textContent: "0" });
      return make("div", {}, make("dt", { textContent: label }), this.numbers[name]);
    }));
  }

  answer(title) {
    const http = make("pre", { tabIndex: 0, textContent: "none yet", "aria-label": `${title}, HTTP` });
    const grpc = make("pre", { tabIndex: 0, textContent: "none yet", "aria-label": `${title}, gRPC` });
    const details = make("details", {}, make("summary", { textContent: title }),
      make("h4", { textContent: "HTTP" }), http, make("h4", { textContent: "The same in gRPC" }), grpc);
    return { details, http, grpc };
  }

  /** Takes the sample of a quarter of a second. */
  add(at, sample) {
    // By the middle of the sample, which may arrive a little late.
    const second = Math.floor((at - 125) / 1000);
    let bar = this.seconds.at(-1);
    if (bar?.second !== second) {
      bar = { second, admitted: 0, queued: 0, denied: 0 };
      this.seconds.push(bar);
      if (this.seconds.length > SECONDS) this.seconds.shift();
    }
    for (const kind of ["admitted", "queued", "denied"]) {
      bar[kind] += sample[kind];
      this.total[kind] += sample[kind];
    }
    this.longest = Math.max(this.longest, sample.longest_wait);
    if (sample.levels.length > 0) this.levels.push(percentUsed(sample.levels[0]));
    if (this.levels.length > SECONDS * PER_SECOND) this.levels.shift();
    this.sample = sample;
    if (sample.last_admitted) fill(this.admitted, sample.last_admitted);
    if (sample.last_denied) fill(this.denied, sample.last_denied);
    this.show();
  }

  show() {
    const { admitted, queued, denied } = this.total;
    const labels = [`${SECONDS} s ago`, "now"];
    this.bars.show(this.seconds, SECONDS, labels,
      `Requests per second. Since the start: ${admitted} admitted at once, ${queued} after a wait, ${denied} denied.`);
    for (const [kind, count] of Object.entries(this.total)) {
      const since = this.marked ? ` (${count - this.marked[kind]})` : "";
      setText(this.numbers[kind], `${count}${since}`);
    }
    setText(this.numbers.longest, span(this.longest));
    const sample = this.sample;
    if (!sample) return;
    setText(this.numbers.waiting, String(sample.waiting));
    if (sample.queued > 0) setText(this.numbers.mean, span(sample.mean_wait));
    if (sample.levels.length > 0) {
      const [{ remaining, limit }] = sample.levels;
      this.level.show(this.levels, SECONDS * PER_SECOND, 100, labels,
        `Client 1 has used ${this.levels.at(-1)} % of its limit and may still use ${remaining} of ${limit}.`);
    }
    this.showClients(sample.levels);
    this.line.replaceChildren(...sample.line.map(({ number, important, waits }) => make("li",
      { className: important ? "important" : "" }, `#${number}${important ? " important" : ""}, ${span(waits)}`)));
    if (this.rows.open) this.showTable();
  }

  showClients(levels) {
    while (this.clients.children.length > levels.length) this.clients.lastChild.remove();
    levels.forEach(({ remaining, limit, part, full_after }, at) => {
      let item = this.clients.children[at];
      if (!item) {
        item = make("li", {}, make("span"), make("meter", { min: 0, "aria-hidden": "true" }));
        this.clients.append(item);
      }
      item.lastChild.max = Math.max(limit, 1);
      item.lastChild.value = remaining;
      const full = full_after > 0 ? `, all in ${span(full_after)}` : "";
      const of = this.parts.length > 1 ? ` of ${this.parts[part]}` : "";
      setText(item.firstChild, `Client ${at + 1}: ${remaining} of ${limit}${full}${of}`);
    });
  }

  /** Counts anew from here, beside the totals. */
  mark() {
    this.marked = { ...this.total };
  }

  showTable() {
    if (!this.rows.open) return;
    const rows = this.seconds.slice(-10).reverse()
      .map((bar) => [`${bar.second} s`, bar.admitted, bar.queued, bar.denied]);
    this.table.replaceChildren(table(`Requests per second of ${this.name}, newest first`,
      ["Second", "Admitted", "After a wait", "Denied"], rows));
  }

  /** The totals in one sentence. */
  summary() {
    const { admitted, queued, denied } = this.total;
    return `${this.name}: ${admitted} admitted at once, ${queued} after a wait, ${denied} denied.`;
  }
}

/** The samples of several routes as one. What a client may use is known of a single one only. */
export function together([first, ...others]) {
  return others.reduce((sum, sample) => ({
    ...sum,
    admitted: sum.admitted + sample.admitted,
    queued: sum.queued + sample.queued,
    denied: sum.denied + sample.denied,
    waiting: sum.waiting + sample.waiting,
    longest_wait: Math.max(sum.longest_wait, sample.longest_wait),
    levels: [],
  }), first);
}

function percentUsed({ remaining, limit }) {
  return Math.round(100 * (1 - Math.min(remaining / Math.max(limit, 1), 1)));
}

function fill({ http, grpc }, answer) {
  setText(http, answer.http);
  setText(grpc, answer.grpc);
}

/** Code that can be copied. */
function code(title, text) {
  return make("details", {}, make("summary", { textContent: title }), block(text, title));
}

function block(text, title) {
  const pre = make("pre", { tabIndex: 0, textContent: text, "aria-label": title });
  const button = make("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", () => copy(button, text));
  return make("div", {}, pre, button);
}

/** Copies the text, and says so on the button. */
export async function copy(button, text) {
  const label = button.dataset.label ?? button.textContent;
  button.dataset.label = label;
  try {
    await navigator.clipboard.writeText(text);
    setText(button, "Copied");
  } catch {
    setText(button, "The browser does not allow it");
  }
  setTimeout(() => setText(button, label), 2_000);
}
