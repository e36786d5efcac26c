// What the page is set to, and the link that restores it.

/** The fields of the traffic: name, label, greatest value, value at first, least value. */
export const FIELDS = [
  ["rate", "Requests per second", 500, 20, 1],
  ["burst", "Requests at the same moment", 500, 1, 1],
  ["clients", "Clients", 20, 1, 1],
  ["cost", "Cost of each request", 100, 1, 1],
  ["important", "Important requests, in %", 100, 0, 0],
];

/** Traffic to begin with: name, and the fields that differ from the values at first. */
export const PRESETS = [
  ["Below the limit", { rate: 5 }],
  ["Twice the limit", { rate: 20 }],
  ["Bursts", { rate: 10, burst: 40 }],
  ["A flood of four clients", { rate: 400, clients: 4 }],
  ["One of four is important", { rate: 20, important: 25 }],
];

/** What the routes can be: name, label, what it shows, and what can happen: event, button, its text while it lasts. */
export const SCENES = {
  policies: ["Each policy in this process", "Each policy gets the same requests.", []],
  leased: ["Policy 1 for three machines: Leased",
    "Each request goes to one process, and to one of three machines that lease budgets from a store and decide in memory. " +
    "Together they admit no more than the limit. While the store is down, each machine uses what it holds, and then a third of the limit of its own.",
    [["outage", "Stop the store"], ["recovery", "Start the store"]]],
  synced: ["Policy 1 for three machines: Synced",
    "As with Leased, but a machine may also use what refills until the next exchange: the fleet may admit that much more.",
    [["outage", "Stop the store"], ["recovery", "Start the store"]]],
  restart: ["Policy 1 over a restart",
    "Three servers get the same requests. Restart two of them: one has saved its state and loads it, and nothing is forgotten.",
    [["restart", "Restart two servers"]]],
};

export const MAX_POLICIES = 4;

const FIRST_POLICIES = ["token_bucket 10/s; burst=50", "fixed_window 10/s", "leaky_bucket 10/s; burst=1; queue=20"];

/** The setting in a link, or the one at first. */
export function fromFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const policies = fields.getAll("policy").slice(0, MAX_POLICIES);
  const traffic = {};
  for (const [name, , , first] of FIELDS) traffic[name] = fields.get(name) ?? String(first);
  const scene = SCENES[fields.get("scene")] ? fields.get("scene") : "policies";
  return { policies: policies.length > 0 ? policies : FIRST_POLICIES, traffic, scene };
}

/** The part of the link after `#`. */
export function toFragment({ policies, traffic, scene }) {
  const fields = new URLSearchParams();
  for (const policy of policies) fields.append("policy", policy);
  for (const [name] of FIELDS) fields.set(name, traffic[name]);
  if (scene !== "policies") fields.set("scene", scene);
  return `#${fields}`;
}
