// What the figures of a job come to, in words: dropped is what was dropped, whatever the mode says.

export const seconds = (value) => `${value.toFixed(2)} s`;
export const percent = (share) => (share >= 0.9995 && share < 1.0005 ? "100%" : `${(100 * share).toFixed(1)}%`);
export const whole = (value) => value.toLocaleString("en");
export function number(value) {
  const plain = Math.abs(value) < 1e6 && (Number.isInteger(value) || Math.abs(value) >= 100);
  return plain ? value.toFixed(0) : String(+value.toPrecision(3));
}

// A length of time as people say it; coarse, so that it does not change with every look.
export function duration(value) {
  if (value < 55) return `${Math.max(1, value < 10 ? Math.round(value) : 10 * Math.round(value / 10))} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129600) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86400)} days`;
}

export function headline(job) {
  const { mean, target } = job.latency;
  const late = mean != null && target != null && mean > 1.1 * target;
  const age = mean == null || target == null ? "" : `; results are ${seconds(mean)} old, ${late ? "later than the target of" : "the target is"} ${target} s`;
  const text = `${job.participant ? member(job) : drops(job)}${age}.`;
  return job.stale || job.problem ? `When last heard: ${text}` : text;
}

// The modes in force: several where the nodes of a network differ.
export function modes(job) {
  if (job.mode !== "mixed") return [job.mode];
  return [...new Set(Object.values(job.nodes).map((node) => node.mode).filter(Boolean))].sort();
}

function drops(job) {
  const differ = job.mode === "mixed" ? ` (the nodes' modes differ: ${modes(job).join(", ")})` : "";
  if (job.loss == null) return "No batch has been counted yet";
  if (job.loss > 0.0005) return `Floodway drops ${percent(job.loss)} of what arrives${differ}`;
  if (job.mode === "off") return "Nothing is dropped: the mode is off";
  const kept = job.keep < 0.9995 ? `; ${job.mode === "enforce" ? "the plan in force keeps" : "enforcing would keep"} ${percent(job.keep)} of what arrives` : "";
  return `Nothing is dropped${job.mode === "observe" ? ": the mode is observe" : ` now${differ}`}${kept}`;
}

function member(job) {
  const cut = Object.entries(job.participant.fragments).filter(([, one]) => one.keep < 0.9995);
  const over = job.participant.load > 1.005 * job.participant.cpu ? "Overloaded: " : "";
  if (cut.length) return `${over}${over ? "it" : "It"} keeps ${cut.map(([at, one]) => `${percent(one.keep)} of ${at}`).join(", ")}`;
  return over ? `${over}more work arrives than its CPU can do; nothing is dropped yet` : "Nothing is dropped";
}

const ago = (age) => `${duration(age)} ago`;

// Whether all of a job is heard; a node that is not is named.
export function silence(job) {
  const silent = Object.entries(job.silent);
  if (silent.length) return `node ${silent.map(([node, age]) => `${node} was last heard ${ago(age)}`).join(", ")}`;
  if (job.age_seconds == null) return "not heard yet";
  if (job.stale) return `last heard ${ago(job.age_seconds)}`;
  return job.problem ? "no answer" : "live";
}

// The warning when the figures are not those of now; the same words for as long as it lasts.
export function warning(job) {
  if (job.problem && job.age_seconds == null) return `Nothing is known of this job yet: ${job.problem}.`;
  if (job.problem) return `Its agent does not answer: ${job.problem}. What follows is what it said last.`;
  if (job.decision_seen === false) return "The last batch did not find the decision in force: can its executors read the state?";
  const silent = Object.keys(job.silent);
  if (silent.length) return `Nothing is heard of ${silent.join(", ")}: what follows of it is what it said last.`;
  return job.stale ? "Nothing is heard of this job: it has ended, or was killed. What follows is what it said last." : "";
}
