// The part of the page in virtual time.

import { Bars } from "./chart.js";
import { byId, call, make, scrolling, setText, span, table } from "./dom.js";

const MAX_LOG = 16 * 1024 * 1024;

export class WhatIf {
  /** `setting` returns the policies and the traffic of the page. */
  constructor(setting) {
    this.setting = setting;
    byId("log").addEventListener("change", () => { this.source("log").checked = true; });
    byId("duration").addEventListener("change", () => { this.source("traffic").checked = true; });
    byId("what-if").addEventListener("submit", (event) => {
      event.preventDefault();
      this.compute();
    });
  }

  source(value) {
    return document.querySelector(`input[name="source"][value="${value}"]`);
  }

  async compute() {
    setText(byId("what-if-error"), "");
    setText(byId("what-if-status"), "Computing.");
    try {
      const results = await call("api/what-if", await this.request());
      const cards = results.policies.map((result, at) => card(at + 1, results, result));
      byId("what-if-results").replaceChildren(...cards);
      setText(byId("what-if-status"), `${results.requests} requests in ${span(results.length)}. ` +
        results.policies.map((result, at) => `Policy ${at + 1} denied ${result.total.denied}.`).join(" "));
    } catch (error) {
      setText(byId("what-if-status"), "");
      setText(byId("what-if-error"), error.message);
    }
  }

  /** What the server needs, or an error that says what is missing. */
  async request() {
    const { policies, traffic } = this.setting();
    if (this.source("traffic").checked) {
      return { policies, traffic, seconds: Number(byId("duration").value) };
    }
    const [file] = byId("log").files;
    if (!file) throw new Error("Choose a log file first.");
    if (file.size > MAX_LOG) {
      throw new Error(`The log has ${file.size} bytes; at most ${MAX_LOG} are allowed.`);
    }
    return { policies, log: await file.text() };
  }
}

function card(number, { bin, length }, { line, total, bins, longest_wait, worst, clients, busiest }) {
  const bars = new Bars();
  bars.show(bins, bins.length, ["start", span(length)],
    `Requests per ${span(bin)}: ${total.admitted} admitted at once, ${total.queued} after a wait, ${total.denied} denied.`);
  const numbers = [["Admitted at once", total.admitted], ["After a wait", total.queued], ["Denied", total.denied],
    ["Longest wait", span(longest_wait)], ["Clients", clients],
    [`Most cost of one client in any ${span(worst.period)}`, worst.cost]];
  const perBin = bins.map((one, at) => [span(at * bin), one.admitted, one.queued, one.denied]);
  const perClient = busiest.map((one) => [one.client, one.admitted, one.queued, one.denied]);
  const columns = ["Admitted", "After a wait", "Denied"];
  return make("article", { className: "card", "aria-labelledby": `what-if-${number}` },
    make("h3", { id: `what-if-${number}` }, `${number}. `, make("code", { textContent: line })),
    bars.svg,
    make("dl", { className: "numbers" }, ...numbers.map(([label, value]) => make("div", {},
      make("dt", { textContent: label }), make("dd", { textContent: String(value) })))),
    details(`The chart as a table: requests per ${span(bin)}`,
      table("Requests over time", ["From", ...columns], perBin)),
    details("The clients with the most denials",
      table("Requests per client", ["Client", ...columns], perClient)));
}

function details(title, content) {
  return make("details", {}, make("summary", { textContent: title }), scrolling(title, content));
}
