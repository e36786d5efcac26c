// A run on the server: its traffic and its samples.

import { call } from "./dom.js";

export class Live {
  /** `onSample` gets each sample; `onEnd` is called when the server has ended the run. */
  constructor(onSample, onEnd) {
    this.onSample = onSample;
    this.onEnd = onEnd;
  }

  /** Starts a run with these policies, without traffic; returns its number and the names of its routes. */
  async open(policies, scene) {
    const { run, lanes } = await call("api/runs", { policies, scene });
    this.close();
    this.run = run;
    this.events = new EventSource(`api/runs/${run}/events`);
    this.events.addEventListener("message", (event) => {
      if (run === this.run) this.onSample(JSON.parse(event.data));
    });
    this.events.addEventListener("error", () => {
      this.close();
      this.onEnd();
    });
    return { run, names: lanes };
  }

  close() {
    this.events?.close();
    this.run = undefined;
  }

  /** Changes the traffic; `null` stops it. */
  setTraffic(traffic) {
    return call(`api/runs/${this.run}/traffic`, { traffic });
  }

  sendOne(cost, important) {
    return call(`api/runs/${this.run}/requests`, { cost, important });
  }

  /** An outage of the store, its end, or a restart. */
  happens(event) {
    return call(`api/runs/${this.run}/happens`, { event });
  }
}
