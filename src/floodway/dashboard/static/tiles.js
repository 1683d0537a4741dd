// The tiles: one figure each with its unit and what it means. A tile whose figure is not known is not there.

import { duration, number, percent, seconds, whole } from "/static/words.js";

const LEDGER = { reconciled: "reconciled", differs: "differs" };

export function tiles(job) {
  const { latency_seconds: latency, target_seconds: target } = job;
  const floor = job.unreachable && job.floor_seconds != null ? ` is below the floor of ${seconds(job.floor_seconds)}` : "";
  tile("latency", latency, seconds, target == null ? "" : `target ${target} s${floor}`, target == null ? null : latency <= 1.1 * target);
  mark("target", target);
  const observed = job.would_drop != null && job.mode !== "enforce" && job.switchable;
  tile("loss", job.loss, percent, observed ? `${percent(job.would_drop)} if enforced` : "of what arrives");
  mark("would", observed ? job.would_drop : null);
  const share = job.score != null && job.optimum ? job.score / job.optimum : null;
  tile("share", share, percent, share == null ? "" : `${number(job.score)} of ${number(job.optimum)} weighted tuples/s`);
  const state = job.ledger.state === "none" ? null : job.ledger.state;
  tile("ledger", state, (name) => LEDGER[name], `${whole(job.ledger.lines)} lines`, state === "reconciled");
  mark("lines", job.ledger.lines);
  member(job.participant ?? {});
}

function member(one) {
  tile("load", one.share, percent, one.share == null ? "" : `${one.load.toFixed(2)} of ${one.cpu.toFixed(2)} CPU`, one.share <= 1.005);
  const running = one.own && one.own.length + Object.keys(one.borrowed).length;
  tile("fragments", running, (count) => `${count} here`, one.own ? holdings(one) : "");
  tile("moves", one.moving, (count) => `${count} under way`, one.moved ? moves(one) : "");
  tile("balance", one.balance, (value) => `${value > 0 ? "+" : ""}${number(value)}`, "price × CPU × seconds");
  const left = one.lease_seconds;
  tile("leases", one.leases, (count) => `${count} held`, left == null ? "" : left > 0 ? `good for ${duration(left)}` : "run out", left == null ? null : left > 0);
}

function holdings(one) {
  const by = (table) => Object.entries(table).map(([fragment, who]) => [who, fragment]).reduce((found, [who, fragment]) => ({ ...found, [who]: [...(found[who] ?? []), fragment] }), {});
  const list = (table, word) => Object.entries(by(table)).map(([who, fragments]) => `${fragments.length} ${word} ${who}`);
  return [`${one.own.length} own`, ...list(one.borrowed, "run for"), ...list(one.lent, "lent to")].join(", ");
}

function moves(one) {
  const offer = one.offer ? `offers ${one.offer.fragments.join(", ")} to ${one.offer.to}; ` : "";
  return `${offer}${one.moved.done} done, ${one.moved.failed} failed`;
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
