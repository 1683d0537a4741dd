// The tiles: one figure each with its unit and what it means. A tile whose figure is not known is not there.

import { duration, number, percent, seconds, whole } from "/static/words.js";

export function tiles(job) {
  const { mean: latency, p95, target } = job.latency;
  const floor = job.unreachable && job.floor_seconds != null ? ` is below the floor of ${seconds(job.floor_seconds)}` : "";
  const most = p95 == null ? "" : `, 95% below ${seconds(p95)}`;
  tile("latency", latency, seconds, `${target == null ? "" : `target ${target} s${floor}`}${most}`, target == null ? null : latency <= 1.1 * target);
  mark("target", target);
  const observed = job.mode === "observe";
  tile("loss", job.loss, percent, observed ? `${percent(job.would_drop)} if enforced` : "of what arrives");
  mark("would", observed ? job.would_drop : null);
  const { dropped, recovered } = job.totals;
  tile("recovered", recovered || null, whole, `of ${whole(Object.values(dropped).reduce((sum, count) => sum + count, 0))} dropped tuples`);
  const efficiency = job.executor_efficiency == null ? "efficiency assumed" : `measured efficiency ${job.executor_efficiency.toFixed(2)}`;
  tile("capacity", job.capacity_needed, (times) => `${times.toFixed(2)} ×`, job.executors_more ? `the present one: ${whole(job.executors_more)} executors more, ${efficiency}` : "the present one", job.capacity_needed <= 1);
  const behind = job.behind, until = behind?.catch_up_seconds;
  tile("behind", behind?.tuples, (count) => `${whole(count)} tuples`, until == null ? "and falling further behind" : `caught up in ${duration(until)}`, until != null);
  const accuracy = job.accuracy;
  tile("accuracy", accuracy?.bound, percent, accuracy ? `of ${accuracy.aggregate}, target ${percent(accuracy.within)}` : "", accuracy?.held ?? null);
  const share = job.score != null && job.optimum ? job.score / job.optimum : null;
  tile("share", share, percent, share == null ? "" : `${number(job.score)} of ${number(job.optimum)} weighted tuples/s`);
  const state = job.ledger == null ? null : job.ledger.differences.length ? "differs" : "reconciled";
  tile("ledger", state, (name) => name, `${whole(job.ledger?.lines ?? 0)} lines`, state === "reconciled");
  mark("lines", job.ledger?.lines);
  member(job, job.participant);
}

function member(job, one) {
  const share = one?.cpu ? one.load / one.cpu : null;
  tile("load", share, percent, share == null ? "" : `${one.load.toFixed(2)} of ${one.cpu.toFixed(2)} CPU`, share <= 1.005);
  tile("fragments", one && Object.keys(one.fragments).length, (count) => `${count} here`, one ? holdings(job, one) : "");
  const { done = 0, failed = 0, ...open } = one?.moves_total ?? {};
  const offer = one?.offer ? `offers ${one.offer.fragments.join(", ")} to ${one.offer.taker}; ` : "";
  tile("moves", one && Object.values(open).reduce((sum, count) => sum + count, 0), (count) => `${count} under way`, `${offer}${done} done, ${failed} failed`);
  tile("balance", one?.balance, (value) => `${value > 0 ? "+" : ""}${number(value)}`, "price × CPU × seconds");
  const held = Object.values(one?.leases ?? {}), left = held.length ? Math.min(...held) - job.time - (job.age_seconds ?? 0) : null;
  tile("leases", one && held.length, (count) => `${count} held`, left == null ? "" : left > 0 ? `good for ${duration(left)}` : "run out", left == null ? null : left > 0);
}

// How many fragments are run for whom, and how many of its own others run.
function holdings(job, one) {
  const count = (names, word) => [...names.reduce((found, name) => found.set(name, (found.get(name) ?? 0) + 1), new Map())].map(([name, times]) => `${times} ${word} ${name}`);
  const owners = Object.values(one.fragments).map((fragment) => fragment.owner);
  const others = owners.filter((owner) => owner !== job.name);
  return [`${owners.length - others.length} own`, ...count(others, "run for"), ...count(Object.values(one.lent), "lent to")].join(", ");
}

// A tile is `#tile-NAME` with the figure in [data-field=NAME] and the rest of its line beside it.
function tile(name, value, text, beside, good = null) {
  const field = document.querySelector(`[data-field="${name}"]`), place = field.closest(".tile");
  place.hidden = value == null;
  mark(name, value);
  if (value == null) return;
  set(field, text(value));
  set(field.nextElementSibling, beside);
  place.classList.toggle("good", good === true);
  place.classList.toggle("bad", good === false);
}

function mark(name, value) {
  document.querySelector(`[data-field="${name}"]`).dataset.value = value ?? "";
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
