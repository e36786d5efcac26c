// The list of policies: typing, errors, adding and removing.

import { byId, call, debounce, make, setText } from "./dom.js";
import { MAX_POLICIES } from "./setting.js";

const EXAMPLES = [
  ["token_bucket 10/s; burst=50", "A rate, with bursts", "burst, initial, debt, refill_every, queue, max_wait"],
  ["leaky_bucket 10/s; burst=1; queue=20", "An even flow: one request after the other", "burst, initial, debt, refill_every, queue, max_wait"],
  ["fixed_window 100/min", "A number per window: twice as many at its edge", "anchored, offset, queue, max_wait"],
  ["sliding_log 5/min", "Exactly: never more in any period", "queue, max_wait"],
  ["sliding_window 100/min", "A number per period, from two counts", "offset, queue, max_wait"],
  ["sliding_grid 100/min; cells=10", "A number per period, from a few counts", "cells, strict, offset, queue, max_wait"],
  ["warm_up 10/s; warm_up=10s", "A rate that rises", "warm_up, cold_factor, queue, max_wait"],
  ["lockout 5/min", "Too many requests lock the client out", "block, max_block, forget, on_success, queue, max_wait"],
];

export class Policies {
  /** `changed` is called at each change, `valid` with the checked policies once all are valid. */
  constructor(texts, changed, valid) {
    this.list = byId("policies");
    this.changed = changed;
    this.valid = valid;
    this.version = 0;
    this.rows = [];
    this.checkSoon = debounce(200, () => this.check());
    for (const [line, limits, options] of EXAMPLES) {
      byId("examples").append(make("option", { value: line }));
      byId("vocabulary").append(make("tr", {},
        make("td", {}, make("code", { textContent: line })),
        make("td", { textContent: limits }),
        make("td", {}, make("code", { textContent: options }))));
    }
    byId("add").addEventListener("click", () => {
      const used = this.texts();
      const next = EXAMPLES.find(([line]) => !used.includes(line));
      this.append(next[0]).input.focus();
      this.edited();
    });
    this.set(texts);
  }

  texts() {
    return this.rows.map((row) => row.input.value.trim());
  }

  /** Replaces all policies. */
  set(texts) {
    this.list.replaceChildren();
    this.rows = [];
    for (const text of texts) this.append(text);
    this.check();
  }

  append(text) {
    const row = {
      label: make("label"),
      input: make("input", { type: "text", value: text, spellcheck: false, autocomplete: "off", list: "examples" }),
      remove: make("button", { type: "button", textContent: "Remove" }),
      error: make("p", { className: "error", "aria-live": "polite" }),
    };
    row.item = make("li", { className: "policy" }, row.label,
      make("div", { className: "line" }, row.input, row.remove), row.error);
    row.input.addEventListener("input", () => this.edited());
    row.remove.addEventListener("click", () => {
      const at = this.rows.indexOf(row);
      this.rows.splice(at, 1);
      row.item.remove();
      this.number();
      this.rows[Math.min(at, this.rows.length - 1)].input.focus();
      this.edited();
    });
    this.rows.push(row);
    this.list.append(row.item);
    this.number();
    return row;
  }

  /** Numbers the rows anew. */
  number() {
    this.rows.forEach((row, at) => {
      row.label.textContent = `Policy ${at + 1}`;
      row.label.htmlFor = row.input.id = `policy-${at + 1}`;
      row.error.id = `policy-error-${at + 1}`;
      row.input.setAttribute("aria-describedby", row.error.id);
      row.remove.setAttribute("aria-label", `Remove policy ${at + 1}`);
      row.remove.disabled = this.rows.length === 1;
    });
    byId("add").disabled = this.rows.length >= MAX_POLICIES;
  }

  edited() {
    this.changed();
    this.checkSoon();
  }

  async check() {
    const version = ++this.version;
    let checked;
    try {
      checked = await call("api/policies", { policies: this.texts() });
    } catch (error) {
      checked = this.rows.map(() => ({ error: error.message }));
    }
    if (version !== this.version) return;
    this.rows.forEach((row, at) => {
      const { error = "" } = checked[at];
      row.input.setAttribute("aria-invalid", String(error !== ""));
      setText(row.error, error);
    });
    if (checked.every((one) => one.error === undefined)) this.valid(checked);
  }
}
