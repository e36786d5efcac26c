// What the page is set to, and the link that restores it.

/** The fields of the traffic: name, label, greatest value, value at first. */
export const FIELDS = [
  ["rate", "Requests per second", 500, 20],
  ["burst", "Requests at the same moment", 500, 1],
  ["clients", "Clients", 20, 1],
  ["cost", "Cost of each request", 100, 1],
];

/** Traffic to begin with: name, and the fields that differ from the values at first. */
export const PRESETS = [
  ["Below the limit", { rate: 5 }],
  ["Twice the limit", { rate: 20 }],
  ["Bursts", { rate: 10, burst: 40 }],
  ["A flood of four clients", { rate: 400, clients: 4 }],
];

export const MAX_POLICIES = 4;

const FIRST_POLICIES = ["token_bucket 10/s; burst=50", "fixed_window 10/s", "leaky_bucket 10/s; queue=20"];

/** The setting in a link, or the one at first. */
export function fromFragment(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const policies = fields.getAll("policy").slice(0, MAX_POLICIES);
  const traffic = {};
  for (const [name, , , first] of FIELDS) traffic[name] = fields.get(name) ?? String(first);
  return { policies: policies.length > 0 ? policies : FIRST_POLICIES, traffic };
}

/** The part of the link after `#`. */
export function toFragment({ policies, traffic }) {
  const fields = new URLSearchParams();
  for (const policy of policies) fields.append("policy", policy);
  for (const [name] of FIELDS) fields.set(name, traffic[name]);
  return `#${fields}`;
}
