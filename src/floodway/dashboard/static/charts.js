// Charts as plain SVG: lines and stacked areas over time, drawn again at every snapshot (some hundred points).

const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 200, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 26;

export function node(name, attributes = {}, ...children) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const step = (most) => {
  const raw = most / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
};

export const short = (value) => {
  if (value === 0) return "0";
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return String(+value.toPrecision(3));
};

// The time of day, with the day where a chart is of more than one.
function clock(time, span) {
  const day = span > 72000 ? { month: "short", day: "numeric" } : span < 7200 ? { second: "2-digit" } : {};
  return new Date(1000 * time).toLocaleString([], { hour: "2-digit", minute: "2-digit", hour12: false, ...day });
}

// spec: {label, unit, samples, lines: [{name, colour, of}], areas: [...] (stacked, below the lines), dashed: {name, of}}
export function draw(place, spec) {
  const { samples } = spec;
  const WIDTH = Math.max(240, place.clientWidth || 600);
  const svg = node("svg", { width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const areas = spec.areas || [];
  const all = [...areas, ...spec.lines, ...(spec.dashed ? [spec.dashed] : [])];
  const last = samples[samples.length - 1];
  const told = all.map((s) => `${s.name} ${last && s.of(last) != null ? short(s.of(last)) : "unknown"}`).join(", ");
  svg.setAttribute("aria-label", `${spec.label}, latest: ${told} ${spec.unit}`);
  if (samples.length < 2) {
    svg.append(node("text", { x: WIDTH / 2, y: HEIGHT / 2, "text-anchor": "middle", class: "empty" }, "waiting for figures …"));
    place.replaceChildren(svg);
    return;
  }
  const first = samples[0].time, span = Math.max(last.time - first, 1);
  const stack = (s) => areas.reduce((sum, area) => sum + (area.of(s) || 0), 0);
  const highest = samples.reduce((most, s) => Math.max(most, stack(s), ...all.map((one) => one.of(s) || 0)), 1e-9);
  const tick = step(highest), top = Math.ceil((highest * 1.02) / tick) * tick;
  const x = (time) => LEFT + ((time - first) / span) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
  for (let value = 0; value <= top + tick / 2; value += tick) {
    svg.append(node("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    svg.append(node("text", { x: LEFT - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  }
  for (const share of [0, 0.5, 1]) {
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    svg.append(node("text", { x: LEFT + share * (WIDTH - LEFT - RIGHT), y: HEIGHT - 8, "text-anchor": anchor }, clock(first + share * span, span)));
  }
  let below = samples.map(() => 0);
  for (const area of areas) {
    const above = samples.map((s, i) => below[i] + (area.of(s) || 0));
    const up = samples.map((s, i) => `${x(s.time).toFixed(1)},${y(above[i]).toFixed(1)}`);
    const down = samples.map((s, i) => `${x(s.time).toFixed(1)},${y(below[i]).toFixed(1)}`).reverse();
    svg.append(node("polygon", { points: [...up, ...down].join(" "), fill: `var(${area.colour})`, "fill-opacity": 0.55 }));
    below = above;
  }
  for (const line of [...spec.lines, ...(spec.dashed ? [{ ...spec.dashed, dashed: true }] : [])]) {
    let path = "", pen = false;
    for (const s of samples) {
      const value = line.of(s);
      if (value == null) { pen = false; continue; }
      path += `${pen ? "L" : "M"}${x(s.time).toFixed(1)} ${y(value).toFixed(1)}`;
      pen = true;
    }
    if (path) svg.append(node("path", line.dashed ? { class: "target", d: path } : { class: "line", d: path, stroke: `var(${line.colour})` }));
  }
  const legend = document.createElement("ul");
  legend.className = "legend";
  for (const one of all) {
    const item = document.createElement("li"), key = document.createElement("i");
    key.style.background = one.colour ? `var(${one.colour})` : "var(--ink)";
    item.append(key, one.name);
    legend.append(item);
  }
  place.replaceChildren(svg, legend);
}
