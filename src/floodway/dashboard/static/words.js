// What the figures of a job come to, in words: dropped is what was dropped, whatever the mode says.

export function headline(job, percent, seconds) {
  const { latency_seconds: latency, target_seconds: target } = job;
  const late = latency != null && target != null && latency > 1.1 * target;
  const age = latency == null || target == null ? "" : `; results are ${seconds(latency)} old, ${late ? "later than the target of" : "the target is"} ${target} s`;
  return `${drops(job, late, percent)}${age}.`;
}

function drops(job, late, percent) {
  const modes = (job.mode ?? "").split(", ").filter(Boolean), loss = job.loss || 0;
  const mixed = modes.length > 1 ? ` (the nodes' modes differ: ${job.mode})` : "";
  if (loss > 0.0005) return `Floodway drops ${percent(loss)} of what arrives${mixed}${late ? "" : ", so that the rest is in time"}`;
  const cut = Object.entries(job.planned).filter(([, keep]) => keep < 0.9995);
  if (!job.switchable) return cut.length ? `Overloaded: it keeps ${cut.map(([at, keep]) => `${percent(keep)} of ${at}`).join(", ")}` : "Everything that arrives is processed";
  if (mixed) return `Nothing is dropped now${mixed}`;
  if (modes[0] === "enforce") return "Everything that arrives is processed";
  const would = modes[0] === "observe" && job.would_drop > 0.0005 ? `; enforcing would drop ${percent(job.would_drop)} of what arrives` : "";
  return `Nothing is dropped: the mode is ${job.mode ?? "not known yet"}${would}`;
}

const ago = (age) => (age == null ? "never" : `${Math.round(age)} s ago`);

// Whether all of a job is heard; a node that is not is named.
export function silence(job) {
  const silent = Object.entries(job.silent);
  if (silent.length) return `node ${silent.map(([node, age]) => `${node} was last heard ${ago(age)}`).join(", ")}`;
  return job.stale ? `last heard ${ago(job.age_seconds)}` : "live";
}
