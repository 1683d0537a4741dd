// The page: one snapshot with the past, then one a second by server-sent events; every figure is the API's own.

import { draw, short } from "/static/charts.js";
import { askKey, currentKey } from "/static/key.js";
import { signedHeaders } from "/static/sign.js";
import { headline, silence } from "/static/words.js";

const $ = (id) => document.getElementById(id);
const PAST = 900;
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5"];
let chosen = null, picked = false, latest = null, drawn = null;
const past = new Map();

// --- talking to the server ------------------------------------------------------------------------------------

async function ask(method, path, body = "") {
  const key = currentKey(), headers = key ? signedHeaders(key, method, path, body) : {};
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body || undefined, cache: "no-store" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({ message: answer.statusText }));
  if (answer.status === 401) {
    await askKey(key, told);
    return ask(method, path, body);
  }
  throw new Error(told.message);
}

// Not EventSource: it can send no headers, so it could not be signed. The format read is the same.
async function* events(path) {
  const reader = (await ask("GET", path)).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}

async function follow() {
  for (;;) {
    try {
      take(await (await ask("GET", "/v1/page/snapshot")).json());
      for await (const snapshot of events("/v1/page/events")) take(snapshot);
      throw new Error("the server ended the stream");
    } catch (error) {
      connection(`not connected (${error.message}); trying again`, true);
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

function connection(text, lost) {
  $("connection").textContent = text;
  $("connection").classList.toggle("lost", lost);
}

// --- taking in a snapshot --------------------------------------------------------------------------------------

function take(snapshot) {
  latest = snapshot;
  for (const job of snapshot.jobs) {
    if (job.history) past.set(job.name, job.history);
    const known = past.get(job.name) || [];
    const newest = known[known.length - 1];
    if (job.sample && (!newest || job.sample.time > newest.time)) known.push(job.sample);
    past.set(job.name, known.slice(-PAST));
  }
  // Until somebody picks a job, the page follows one that is alive.
  const current = snapshot.jobs.find((job) => job.name === chosen);
  if (!current || (current.stale && !picked)) chosen = (snapshot.jobs.find((job) => !job.stale) ?? current ?? snapshot.jobs[0])?.name ?? null;
  show();
}

function show() {
  const job = latest.jobs.find((one) => one.name === chosen);
  choices();
  if (!job) { connection("no job has written anything yet", true); return; }
  $("job-name").textContent = job.name;
  document.title = `${job.name} – Floodway`;
  connection(job.problem || silence(job), Boolean(job.problem) || job.stale);
  $("notes").hidden = !job.notes.length;
  $("notes").replaceChildren(...job.notes.map(item));
  tiles(job);
  modes(job);
  network(job);
  charts(job);
  places(job);
  nodes(job);
  federation(job);
}

function choices() {
  const nav = $("jobs");
  nav.hidden = latest.jobs.length < 2;
  const names = latest.jobs.map((job) => job.name);
  if (nav.dataset.names !== names.join("\n")) {
    nav.dataset.names = names.join("\n");
    nav.replaceChildren(...names.map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => { chosen = name; picked = true; show(); });
      return button;
    }));
  }
  for (const button of nav.children) button.setAttribute("aria-current", String(button.textContent === chosen));
}

// --- figures -----------------------------------------------------------------------------------------------------

const seconds = (value) => (value == null ? "–" : `${value.toFixed(2)} s`);
const percent = (share) => (share == null ? "–" : share >= 0.9995 ? "100%" : `${(100 * share).toFixed(1)}%`);
const rate = (value) => `${number(value)}/s`;
const whole = (value) => value.toLocaleString("en");
function number(value) {
  const plain = Math.abs(value) < 1e6 && (Number.isInteger(value) || Math.abs(value) >= 100);
  return plain ? value.toFixed(0) : String(+value.toPrecision(3));
}

function fill(field, text, value) {
  const place = document.querySelector(`[data-field="${field}"]`);
  if (place.textContent !== text) place.textContent = text;
  place.dataset.value = value ?? "";
}

function judge(id, verdict) {
  const tile = $(id);
  tile.classList.toggle("good", verdict === true);
  tile.classList.toggle("bad", verdict === false);
}

function tiles(job) {
  const { latency_seconds: latency, target_seconds: target } = job;
  fill("latency", seconds(latency), latency);
  fill("target", target == null ? "" : job.unreachable ? `target ${target} s is below the floor of ${seconds(job.floor_seconds)}` : `target ${target} s`, target);
  judge("tile-latency", latency == null || target == null ? null : latency <= 1.1 * target);
  fill("loss", percent(job.loss), job.loss);
  const observed = job.would_drop != null && job.mode !== "enforce";
  fill("would", observed ? `${percent(job.would_drop)} if enforced` : "of what arrives", observed ? job.would_drop : null);
  const share = job.score != null && job.optimum ? job.score / job.optimum : null;
  fill("share", percent(share), share);
  fill("score", job.score == null ? "no network file known" : `${number(job.score)} of ${job.optimum == null ? "–" : number(job.optimum)} weighted tuples/s`, job.score);
  const states = { reconciled: "reconciled", differs: "differs", none: "not here" };
  fill("ledger", states[job.ledger.state], job.ledger.state);
  fill("lines", `${whole(job.ledger.lines)} lines`, job.ledger.lines);
  judge("tile-ledger", job.ledger.state === "none" ? null : job.ledger.state === "reconciled");
  const sentence = headline(job, percent, seconds);
  if ($("sentence").textContent !== sentence) $("sentence").textContent = sentence;
}

function modes(job) {
  $("mode-section").hidden = !job.switchable;
  const current = (job.mode ?? "").split(", ");
  for (const button of document.querySelectorAll("[data-mode]")) {
    const is = current.includes(button.dataset.mode);
    button.setAttribute("aria-pressed", is && current.length > 1 ? "mixed" : String(is));
  }
  const { id, planner, objective } = job.plan;
  const parts = [id && `plan ${id}`, planner && `by ${planner}`, objective && `for ${objective}`].filter(Boolean);
  fill("plan", parts.length ? `In force: ${parts.join(" ")}.` : "", id);
}

function network(job) {
  $("network-section").hidden = !job.has_picture;
  if (!job.has_picture) { drawn = null; return; }
  if (drawn !== job.name) {
    drawn = job.name;
    ask("GET", `/v1/page/picture?job=${encodeURIComponent(job.name)}`).then((answer) => answer.text()).then((svg) => {
      const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
      $("picture").replaceChildren(document.importNode(parsed, true));
      figures(latest.jobs.find((one) => one.name === drawn));
    }).catch(() => { drawn = null; });
    return;
  }
  figures(job);
}

function figures(job) {
  const picture = $("picture"), flow = job?.flow;
  if (!flow) return;
  const set = (element, text, value) => { if (element.textContent !== text) element.textContent = text; element.dataset.value = value; };
  for (const e of picture.querySelectorAll("[data-rate]")) set(e, rate(flow.rates[e.dataset.rate] ?? 0), flow.rates[e.dataset.rate] ?? 0);
  for (const e of picture.querySelectorAll("[data-out]")) set(e, rate(flow.throughput[e.dataset.out] ?? 0), flow.throughput[e.dataset.out] ?? 0);
  for (const e of picture.querySelectorAll("[data-arc]")) set(e, rate(flow.arcs[e.dataset.arc] ?? 0), flow.arcs[e.dataset.arc] ?? 0);
  for (const e of picture.querySelectorAll("[data-path]")) e.classList.toggle("idle", !flow.arcs[e.dataset.path]);
  for (const e of picture.querySelectorAll("[data-keep]")) {
    const keep = flow.keeps[e.dataset.keep] ?? 1;
    set(e, `keep ${percent(keep)}`, keep);
    (e.closest("[data-badge]") || e).classList.toggle("dropped", keep < 0.9995);
  }
  for (const e of picture.querySelectorAll("[data-load]")) {
    const load = flow.load[e.dataset.load] ?? 0;
    set(e, `${Math.round(100 * load)}%`, load);
    e.closest("[data-node]").classList.toggle("over", load > 1.005);
  }
}

function charts(job) {
  const samples = past.get(job.name) || [];
  draw($("chart-latency"), {
    label: "Latency over time", unit: "seconds", samples,
    lines: [{ name: "mean latency of results (s)", colour: "--c0", of: (s) => s.latency }],
    dashed: { name: "target (s)", of: (s) => s.target },
  });
  const reasons = [...new Set(samples.flatMap((s) => Object.keys(s.dropped)))].sort();
  const outside = reasons.filter((reason) => !reason.endsWith(", inside"));
  draw($("chart-tuples"), {
    label: "Tuples over time", unit: "tuples/s", samples,
    areas: [{ name: "kept (tuples/s)", colour: "--c0", of: (s) => s.kept },
      ...outside.map((reason, i) => ({ name: `dropped: ${reason}`, colour: COLOURS[i % 5], of: (s) => s.dropped[reason] ?? 0 }))],
    lines: reasons.filter((reason) => reason.endsWith(", inside")).map((reason, i) => ({ name: `dropped: ${reason} the network`, colour: COLOURS[(i + outside.length) % 5], of: (s) => s.dropped[reason] ?? 0 })),
    dashed: { name: "offered", of: (s) => s.offered },
  });
  const scored = samples.filter((s) => s.score != null);
  $("score-section").hidden = job.score == null && !scored.length;
  draw($("chart-score"), {
    label: "Score over time", unit: "weighted tuples/s", samples: scored,
    lines: [{ name: "score (weighted tuples/s)", colour: "--c0", of: (s) => s.score }],
    dashed: { name: "optimum for the capacity used", of: (s) => s.optimum },
  });
}

function rows(table, values) {
  const body = $(table).tBodies[0];
  body.replaceChildren(...values.map((cells) => {
    const row = document.createElement("tr");
    for (const cell of cells) {
      const place = document.createElement("td");
      place.append(cell);
      row.append(place);
    }
    return row;
  }));
}

function places(job) {
  const dropped = (at) => Object.entries(job.dropped[at] || {}).map(([reason, count]) => `${reason} ${whole(count)}`).join(", ") || "–";
  rows("places", Object.keys(job.offered).map((at) => [
    at, whole(job.offered[at]), whole(job.kept[at] ?? 0), dropped(at), percent(job.planned[at] ?? null),
    job.waiting[at] == null ? "–" : whole(job.waiting[at]),
  ]));
  const list = $("differences");
  list.hidden = !job.ledger.differences.length;
  list.replaceChildren(...job.ledger.differences.map(item));
  $("reasons-section").hidden = !Object.keys(job.reasons).length;
  $("reasons").replaceChildren(...Object.entries(job.reasons).map(([name, text]) => item(`${name}: ${text}`)));
}

function item(text) {
  const made = document.createElement("li");
  made.textContent = text;
  return made;
}

function nodes(job) {
  $("nodes-section").hidden = !job.nodes.length;
  rows("nodes", job.nodes.map((one) => {
    const cell = document.createElement("span");
    if (one.share == null) { cell.textContent = one.planned == null ? "–" : `planned ${one.planned.toFixed(2)} CPU`; return [one.name, "–", cell]; }
    const meter = document.createElement("span"), bar = document.createElement("i");
    meter.className = one.share > 1.005 ? "meter over" : "meter";
    bar.style.width = `${Math.min(100, 100 * one.share)}%`;
    meter.append(bar);
    cell.append(meter, `${Math.round(100 * one.share)}%`);
    return [one.name, short(one.cpu), cell];
  }));
}

function federation(job) {
  $("federation-section").hidden = !["fragments", "contracts", "moves"].some((name) => job[name].length);
  for (const name of ["fragments", "contracts", "moves"]) {
    const values = job[name], keys = [...new Set(values.flatMap((one) => Object.keys(one)))];
    const row = document.createElement("tr");
    row.append(...keys.map((text) => { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = text.replaceAll("_", " "); return cell; }));
    $(name).tHead.replaceChildren(row);
    rows(name, values.map((one) => keys.map((field) => (one[field] == null ? "–" : typeof one[field] === "object" ? JSON.stringify(one[field]) : String(one[field])))));
  }
}

// --- the mode switch -----------------------------------------------------------------------------------------------

const WHAT = {
  enforce: "Tuples that do not fit are dropped from the next micro-batch on, as planned.",
  observe: "From the next micro-batch on nothing is dropped; Floodway goes on deciding and reports what it would drop.",
  off: "From the next micro-batch on nothing is dropped and nothing is decided. Under overload results will be late.",
};

for (const button of document.querySelectorAll("[data-mode]")) {
  button.addEventListener("click", async () => {
    const { mode } = button.dataset, job = chosen;
    if (!job || !(await confirmed(job, mode))) return;
    try {
      await ask("POST", "/v1/page/mode", JSON.stringify({ job, mode, confirmed: true }));
      $("mode-note").textContent = `${mode} asked for; the job follows with its next micro-batch.`;
    } catch (error) {
      $("mode-note").textContent = `Not switched: ${error.message}`;
    }
    button.focus();
  });
}

function confirmed(job, mode) {
  const dialog = $("confirm");
  $("confirm-title").textContent = `Switch ${job} to ${mode}?`;
  $("confirm-text").textContent = WHAT[mode];
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "switch"), { once: true }));
}

addEventListener("resize", () => { if (latest) show(); });
follow();
