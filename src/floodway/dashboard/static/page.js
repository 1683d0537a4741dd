// The page: one snapshot with the past, then one a second by server-sent events; every figure is the API's own.

import { draw, short } from "/static/charts.js";
import { askKey, currentKey } from "/static/key.js";
import { meet, signedHeaders } from "/static/sign.js";
import { tiles } from "/static/tiles.js";
import { headline, modes as inForce, number, percent, silence, warning, whole } from "/static/words.js";

const $ = (id) => document.getElementById(id);
const PAST = 900, WHOLE_MS = 10000;
const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5"];
let chosen = null, picked = false, latest = null, drawn = null, range = "recent";
const past = new Map(), everything = new Map();

// --- talking to the server ------------------------------------------------------------------------------------

async function ask(method, path, body = "", again = true) {
  const key = currentKey(), headers = key ? signedHeaders(key, method, path, body) : {};
  if (body) headers["content-type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body || undefined, cache: "no-store" });
  if (answer.ok) return answer;
  const text = await answer.text();
  let told = { message: answer.statusText };
  try { told = JSON.parse(text); } catch { /* not from an agent: its status is all there is to say */ }
  if (answer.status === 401) {
    if (key && again && meet(key, headers, answer, text)) return ask(method, path, body, false);
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
      warn("This page has lost its server. What follows is what it said last.");
      await new Promise((done) => setTimeout(done, 2000));
    }
  }
}

function connection(text, lost) {
  $("connection").textContent = text;
  $("connection").classList.toggle("lost", lost);
}

function warn(text) {
  $("warning").hidden = !text;
  if ($("warning").textContent !== text) $("warning").textContent = text;
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
  comparison(snapshot.comparison);
  show();
}

// A picture of runs beside this page's jobs; its time in the address, so that a new one is fetched.
function comparison(changed) {
  $("comparison-section").hidden = changed == null;
  if (changed != null && $("comparison").dataset.changed !== String(changed)) {
    $("comparison").dataset.changed = changed;
    $("comparison").src = `/v1/page/comparison?changed=${changed}`;
  }
}

function show() {
  const job = latest.jobs.find((one) => one.name === chosen);
  choices();
  if (!job) { connection("no job has written anything yet", true); return; }
  $("job-name").textContent = job.name;
  document.title = `${job.name} – Floodway`;
  connection(silence(job), Boolean(job.problem) || job.stale);
  warn(warning(job));
  $("sentence").textContent = headline(job);
  list("notes", job.notes);
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

const rate = (value) => `${number(value)}/s`;

function modes(job) {
  $("mode-section").hidden = false;
  const current = inForce(job);
  for (const button of document.querySelectorAll("[data-mode]")) {
    const is = current.includes(button.dataset.mode);
    button.setAttribute("aria-pressed", is && current.length > 1 ? "mixed" : String(is));
  }
  const { id, planner, objective } = job.plan ?? {};
  const parts = [id, planner && `planner ${planner}`, objective && `objective ${objective}`].filter(Boolean);
  document.querySelector("[data-field=plan]").textContent = parts.length ? `Plan in force: ${parts.join(", ")}.` : "";
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

// Where a job is older than its recent samples its whole past can be asked for, and is asked for again as it grows.
function samples(job) {
  const long = job.began != null && latest.time - job.began > PAST;
  $("range-section").hidden = !long;
  if (!long || range === "recent") return past.get(job.name) || [];
  const known = everything.get(job.name) ?? { at: 0, samples: [] };
  if (Date.now() - known.at > WHOLE_MS) {
    everything.set(job.name, { ...known, at: Date.now() });
    ask("GET", `/v1/page/history?job=${encodeURIComponent(job.name)}`).then((answer) => answer.json()).then((told) => {
      everything.set(told.job, { at: Date.now(), samples: told.samples });
      show();
    }).catch(() => {});
  }
  return known.samples;
}

for (const button of document.querySelectorAll("[data-range]")) {
  button.addEventListener("click", () => {
    range = button.dataset.range;
    for (const one of document.querySelectorAll("[data-range]")) one.setAttribute("aria-pressed", String(one === button));
    show();
  });
}

function charts(job) {
  const all = samples(job);
  // A chart is there if there is anything to draw; its place must have a width before it is drawn.
  const chart = (name, known, spec) => {
    $(`${name}-section`).hidden = !known.length;
    if (known.length) draw($(`chart-${name}`), { ...spec, samples: known });
  };
  chart("latency", all.some((s) => s.latency != null) ? all : [], {
    label: "Latency over time", unit: "seconds",
    lines: [{ name: "mean latency of results (s)", colour: "--c0", of: (s) => s.latency }],
    dashed: { name: "target (s)", of: (s) => s.target },
  });
  const reasons = [...new Set(all.flatMap((s) => Object.keys(s.dropped)))].sort();
  const outside = reasons.filter((reason) => !reason.endsWith(", inside"));
  chart("tuples", all.some((s) => s.offered || reasons.length) ? all : [], {
    label: "Tuples over time", unit: "tuples/s",
    areas: [{ name: "kept (tuples/s)", colour: "--c0", of: (s) => s.kept },
      ...outside.map((reason, i) => ({ name: `dropped: ${reason}`, colour: COLOURS[i % 5], of: (s) => s.dropped[reason] ?? 0 }))],
    lines: reasons.filter((reason) => reason.endsWith(", inside")).map((reason, i) => ({ name: `dropped: ${reason} the network`, colour: COLOURS[(i + outside.length) % 5], of: (s) => s.dropped[reason] ?? 0 })),
    dashed: { name: "offered", of: (s) => s.offered },
  });
  chart("score", all.filter((s) => s.score != null), {
    label: "Score over time", unit: "weighted tuples/s",
    lines: [{ name: "score (weighted tuples/s)", colour: "--c0", of: (s) => s.score }],
    dashed: { name: "optimum for the capacity used", of: (s) => s.optimum },
  });
  chart("load", all.filter((s) => s.load != null), {
    label: "Load over time", unit: "percent",
    lines: [{ name: "load (% of the CPU)", colour: "--c0", of: (s) => 100 * s.load }],
    dashed: { name: "capacity", of: () => 100 },
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
  const dropped = (one) => Object.entries(one.dropped).map(([reason, count]) => `${reason} ${whole(count)}`).join(", ") || "–";
  const known = Object.entries(job.places).filter(([, one]) => one.offered);
  $("places-section").hidden = !known.length;
  rows("places", known.map(([at, one]) => [
    at, whole(one.offered), whole(one.kept), dropped(one), percent(one.keep), one.waiting == null ? "–" : whole(one.waiting),
  ]));
  const outputs = Object.entries(job.outputs ?? {});
  $("outputs-section").hidden = !outputs.length;
  rows("outputs", outputs.map(([name, one]) => [name, ...[one.mean, one.p95, one.target].map((s) => (s == null ? "–" : `${s.toFixed(2)} s`))]));
  const keys = job.keys ?? [];
  $("keys-section").hidden = !keys.length;
  rows("keys", keys.map((one) => [one.key, percent(one.share), percent(one.keep)]));
  $("why").replaceChildren(...Object.entries(job.why).flatMap(([reason, text]) => [term("dt", reason), term("dd", text)]));
  list("differences", job.ledger?.differences ?? []);
  const nodes = Object.entries(job.reasons).map(([name, text]) => `${name}: ${text}`);
  const reasons = nodes.length ? nodes : [job.reason].filter(Boolean);
  $("reasons-section").hidden = !reasons.length;
  list("reasons", reasons);
}

function term(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function list(id, texts) {
  $(id).hidden = !texts.length;
  $(id).replaceChildren(...texts.map((text) => term("li", text)));
}

function nodes(job) {
  const known = Object.entries(job.nodes).filter(([name, one]) => job.load[name] != null || one.load != null);
  $("nodes-section").hidden = !known.length || job.participant != null;  // a participant has a tile for it
  rows("nodes", known.map(([name, one]) => {
    const cell = document.createElement("span"), share = job.load[name];
    if (share == null) { cell.textContent = `planned ${one.load.toFixed(2)} CPU`; return [name, "–", cell]; }
    const meter = document.createElement("span"), bar = document.createElement("i");
    meter.className = share > 1.005 ? "meter over" : "meter";
    bar.style.width = `${Math.min(100, 100 * share)}%`;
    meter.append(bar);
    cell.append(meter, `${Math.round(100 * share)}%`);
    return [name, one.cpu == null ? "–" : short(one.cpu), cell];
  }));
}

function federation(job) {
  const { fragments = {}, contracts = [], moves = [] } = job.participant ?? {};
  const tables = { fragments: Object.entries(fragments).map(([fragment, one]) => ({ fragment, ...one })), contracts, moves };
  list("troubles", job.troubles);
  $("federation-section").hidden = !Object.values(tables).some((values) => values.length);
  for (const [name, values] of Object.entries(tables)) {
    const keys = [...new Set(values.flatMap((one) => Object.keys(one)))];
    const row = document.createElement("tr");
    row.append(...keys.map((text) => { const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = text.replaceAll("_", " "); return cell; }));
    $(name).tHead.replaceChildren(row);
    rows(name, values.map((one) => keys.map((field) => cell(field, one[field]))));
  }
}

function cell(field, value) {
  if (value == null || value === "") return "–";
  if (field === "at") return new Date(1000 * value).toLocaleString();
  if (field === "keep") return percent(value);
  if (typeof value === "number") return number(value);
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "object") return Object.entries(value).map(([name, item]) => `${name.replaceAll("_", " ")} ${number(item)}`).join(", ") || "–";
  return String(value);
}

// --- the mode switch -----------------------------------------------------------------------------------------------

const WHAT = {
  enforce: "Tuples that do not fit are dropped from the next micro-batch on, as planned.",
  observe: "From the next micro-batch on nothing is dropped; Floodway still decides and reports what it would drop.",
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
