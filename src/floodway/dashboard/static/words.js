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
  const { latency_seconds: latency, target_seconds: target } = job;
  const late = latency != null && target != null && latency > 1.1 * target;
  const age = latency == null || target == null ? "" : `; results are ${seconds(latency)} old, ${late ? "later than the target of" : "the target is"} ${target} s`;
  const text = `${drops(job, late)}${age}.`;
  return job.stale || job.problem ? `When last heard: ${text}` : text;
}

function drops(job, late) {
  const modes = (job.mode ?? "").split(", ").filter(Boolean), loss = job.loss || 0;
  const mixed = modes.length > 1 ? ` (the nodes' modes differ: ${job.mode})` : "";
  if (!job.switchable) return participant(job);
  if (loss > 0.0005) return `Floodway drops ${percent(loss)} of what arrives${mixed}${late ? "" : ", so that the rest is in time"}`;
  if (mixed) return `Nothing is dropped now${mixed}`;
  if (modes[0] === "enforce") return "Everything that arrives is processed";
  const would = modes[0] === "observe" && job.would_drop > 0.0005 ? `; enforcing would drop ${percent(job.would_drop)} of what arrives` : "";
  return `Nothing is dropped: the mode is ${job.mode ?? "not known yet"}${would}`;
}

function participant(job) {
  const cut = Object.entries(job.planned).filter(([, keep]) => keep < 0.9995);
  if (cut.length) return `Overloaded: it keeps ${cut.map(([at, keep]) => `${percent(keep)} of ${at}`).join(", ")}`;
  return job.participant?.share > 1.005 ? "Overloaded: it asks its partners for help, and drops nothing yet" : "Everything that arrives is processed";
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

// What is said loudly when the figures are not those of now; the same words for as long as it lasts.
export function warning(job) {
  if (job.problem && job.age_seconds == null) return `Nothing is known of this job yet: ${job.problem}.`;
  if (job.problem) return `Its agent does not answer: ${job.problem}. What follows is what it said last.`;
  const silent = Object.keys(job.silent);
  if (silent.length) return `Nothing is heard of ${silent.join(", ")}: what follows of it is what it said last.`;
  return job.stale ? "Nothing is heard of this job: it has ended, or was killed. What follows is what it said last." : "";
}
