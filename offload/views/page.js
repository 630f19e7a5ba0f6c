"use strict";
// The page shows a picture that was drawn beforehand; this script moves it, searches it and shows a task's details.
// It reads the tasks from the element "data" (offload/views/page.py says how) and needs no network.

const data = JSON.parse(document.getElementById("data").textContent);
const stage = document.getElementById("stage");
const svg = stage.querySelector("svg");
const panel = document.getElementById("panel");
const search = document.getElementById("search");
const device = document.getElementById("device");
const status = document.getElementById("status");
const SVG = "http://www.w3.org/2000/svg";
const MOST_ROWS = 200; // of a list in the panel
const MOST_MEMBERS = 1500; // boxes of an open fold

// ---- the data: columns of numbers into tables of texts -----------------------------------------------------
const T = data.texts;
const task = (i) => ({
  index: i, key: T[data.key[i]], name: T[data.name[i]], directive: T[data.directive[i]], kind: T[data.kind[i]],
  device: T[data.device[i]], place: T[data.place[i]], state: T[data.state[i]], phase: T[data.phase[i]],
  time: data.time[i], location: T[data.location[i]], fold: data.fold[i], critical: data.critical.has(i),
});
data.critical = new Set(data.path);
const count = data.name.length;
const members = Array.from({ length: data.folds.length }, () => []);
for (let i = 0; i < count; i++) members[data.fold[i]].push(i);
const before = new Map();
const after = new Map();
for (let k = 0; k < data.source.length; k++) {
  const add = (map, at, other) => { if (!map.has(at)) map.set(at, []); map.get(at).push([other, k]); };
  add(before, data.target[k], data.source[k]);
  add(after, data.source[k], data.target[k]);
}
const boxes = new Map();
for (const group of svg.querySelectorAll("[data-fold]")) boxes.set(Number(group.dataset.fold), group);

function duration(seconds) {
  if (seconds === null) return "";
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]]) {
    if (Math.abs(seconds) >= 0.9995 * size) return `${(seconds / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(seconds * 1e9)} ns`;
}

// ---- pan and zoom ----------------------------------------------------------------------------------------
const whole = { width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
let view = { x: 0, y: 0, scale: 1 };
svg.removeAttribute("width");
svg.removeAttribute("height");
svg.setAttribute("preserveAspectRatio", "xMinYMin meet");

function show() {
  const { width, height } = stage.getBoundingClientRect();
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${Math.max(width, 1) / view.scale} ${Math.max(height, 1) / view.scale}`);
}
function fit(box = { x: 0, y: 0, ...whole }, most = 1) {
  const { width, height } = stage.getBoundingClientRect();
  const scale = Math.max(Math.min(width / box.width, height / box.height, most), 0.02);
  view = { x: box.x - (width / scale - box.width) / 2, y: box.y - (height / scale - box.height) / 2, scale };
  show();
}
function zoom(factor, clientX, clientY) {
  const at = stage.getBoundingClientRect();
  const left = clientX === undefined ? at.width / 2 : clientX - at.left;
  const top = clientY === undefined ? at.height / 2 : clientY - at.top;
  const scale = Math.min(Math.max(view.scale * factor, 0.02), 8);
  view = { x: view.x + left / view.scale - left / scale, y: view.y + top / view.scale - top / scale, scale };
  show();
}
function centre(shape) {
  const box = shape.getBBox(); // within the group that leaves the margin
  const scale = Math.max(view.scale, 0.7);
  const { width, height } = stage.getBoundingClientRect();
  view = {
    x: box.x + data.margin + box.width / 2 - width / scale / 2,
    y: box.y + data.margin + box.height / 2 - height / scale / 2,
    scale,
  };
  show();
}
stage.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX, event.clientY);
}, { passive: false });
let drag = null;
const fingers = new Map();
stage.addEventListener("pointerdown", (event) => {
  fingers.set(event.pointerId, event);
  drag = { x: event.clientX, y: event.clientY, moved: false };
});
window.addEventListener("pointermove", (event) => {
  if (!drag || !fingers.has(event.pointerId)) return;
  if (fingers.size === 2) { // a pinch
    const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
    const was = fingers.get(event.pointerId);
    const apart = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
    zoom(apart(event) / Math.max(apart(was), 1), (event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
    fingers.set(event.pointerId, event);
    drag.moved = true;
    return;
  }
  const dx = event.clientX - drag.x;
  const dy = event.clientY - drag.y;
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  stage.classList.add("dragging");
  view.x -= dx / view.scale;
  view.y -= dy / view.scale;
  drag = { x: event.clientX, y: event.clientY, moved: true };
  show();
});
let dragged = false; // whether the click that follows ends a drag
function lift(event) {
  fingers.delete(event.pointerId);
  dragged = Boolean(drag && drag.moved);
  drag = null;
  stage.classList.remove("dragging");
}
window.addEventListener("pointerup", lift);
window.addEventListener("pointercancel", lift);
window.addEventListener("resize", show);

// ---- details ---------------------------------------------------------------------------------------------
function make(tag, text, parent, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}
function link(text, parent, action) {
  make("button", text, parent, { class: "link", type: "button" }).addEventListener("click", action);
}
function facts(pairs) {
  const list = make("dl", null, panel);
  for (const [name, value] of pairs) {
    if (value === "") continue;
    make("dt", name, list);
    make("dd", value, list);
  }
}
function neighbours(title, found) {
  const reasons = new Map(); // by the other task
  for (const [other, k] of found) {
    if (!reasons.has(other)) reasons.set(other, []);
    const item = T[data.item[k]];
    reasons.get(other).push(T[data.why[k]] + (item ? `: ${item}` : ""));
  }
  make("h3", `${title} ${reasons.size.toLocaleString("en")} task${reasons.size === 1 ? "" : "s"}`, panel);
  const list = make("ul", null, panel);
  for (const [other, why] of [...reasons].slice(0, MOST_ROWS)) {
    const row = make("li", null, list);
    link(T[data.key[other]], row, () => choose(other));
    make("small", ` ${why.join(", ")}`, row);
  }
  if (reasons.size > MOST_ROWS) make("li", `… and ${(reasons.size - MOST_ROWS).toLocaleString("en")} more`, list);
}
function mark(name, folds) {
  for (const group of svg.querySelectorAll(`.${name}`)) group.classList.remove(name);
  for (const fold of folds) boxes.get(fold)?.classList.add(name);
}
function choose(i, { move = true } = {}) {
  const one = task(i);
  mark("chosen", [one.fold]);
  mark("before", (before.get(i) || []).map(([other]) => data.fold[other]).filter((fold) => fold !== one.fold));
  mark("after", (after.get(i) || []).map(([other]) => data.fold[other]).filter((fold) => fold !== one.fold));
  for (const group of svg.querySelectorAll(".member")) {
    const j = Number(group.dataset.task);
    group.classList.toggle("chosen", j === i);
    group.classList.toggle("before", (before.get(i) || []).some(([other]) => other === j));
    group.classList.toggle("after", (after.get(i) || []).some(([other]) => other === j));
  }
  panel.replaceChildren();
  make("h2", one.name, panel);
  facts([
    ["key", one.key], ["directive", one.directive], ["kind", one.kind], ["runs on", one.place], ["state", one.state],
    ["time", duration(one.time)], ["generated at", one.location], ["critical path", one.critical ? "yes" : ""],
  ]);
  if (members[one.fold].length > 1) link(`one of ${members[one.fold].length.toLocaleString("en")} tasks in its box`, make("p", null, panel), () => chooseFold(one.fold));
  neighbours("Waits for", before.get(i) || []);
  neighbours("Is waited for by", after.get(i) || []);
  if (move) centre(svg.querySelector(`.member[data-task="${i}"]`) || boxes.get(one.fold));
}
function chooseFold(fold) {
  if (members[fold].length === 1) { choose(members[fold][0], { move: false }); return; }
  mark("chosen", [fold]);
  mark("before", data.strands.filter((s) => s[1] === fold).map((s) => s[0]));
  mark("after", data.strands.filter((s) => s[0] === fold).map((s) => s[1]));
  panel.replaceChildren();
  const box = data.folds[fold];
  make("h2", `${box.title} ×${members[fold].length.toLocaleString("en")}`, panel);
  const times = members[fold].map((i) => data.time[i]).filter((time) => time !== null);
  const sum = times.reduce((a, b) => a + b, 0);
  facts([
    ["tasks", members[fold].length.toLocaleString("en")], ["run on", box.place], ["states", box.state],
    ["total time", times.length ? duration(sum) : ""], ["mean", times.length ? duration(sum / times.length) : ""],
    ["longest", times.length ? duration(times.reduce((a, b) => Math.max(a, b))) : ""],
    ["on the critical path", box.critical ? box.critical.toLocaleString("en") : ""],
  ]);
  link(opened === fold ? "Close this box" : "Open this box", make("p", null, panel), () => { toggle(fold); chooseFold(fold); });
  for (const [title, at, other] of [["Waits for", 1, 0], ["Is waited for by", 0, 1]]) {
    make("h3", title, panel);
    const list = make("ul", null, panel);
    for (const strand of data.strands.filter((s) => s[at] === fold)) {
      const row = make("li", null, list);
      const far = data.folds[strand[other]];
      link(far.title + (members[strand[other]].length > 1 ? ` ×${members[strand[other]].length.toLocaleString("en")}` : ""), row, () => { chooseFold(strand[other]); centre(boxes.get(strand[other])); });
      make("small", ` ${strand[2]}${strand[4] ? `: ${strand[4]}` : ""} (${strand[3].toLocaleString("en")})`, row);
    }
  }
  make("h3", "Tasks", panel);
  const list = make("ul", null, panel);
  const shown = members[fold].filter(passes);
  for (const i of shown.slice(0, MOST_ROWS)) {
    const row = make("li", null, list);
    link(T[data.key[i]], row, () => choose(i));
    make("small", ` ${T[data.state[i]]} ${duration(data.time[i])}${data.critical.has(i) ? " ★" : ""}`, row);
  }
  if (shown.length > MOST_ROWS) make("li", `… and ${(shown.length - MOST_ROWS).toLocaleString("en")} more; search to find them`, list);
}
function overview() {
  for (const name of ["chosen", "before", "after"]) mark(name, []);
  panel.replaceChildren();
  make("h2", "Tasks by name", panel);
  const table = make("table", null, panel);
  const head = make("tr", null, table);
  for (const title of ["name", "count", "time", "state"]) make("th", title, head);
  for (const row of data.totals) {
    const line = make("tr", null, table);
    link(row[0], make("td", null, line), () => { search.value = row[0].split("#")[0]; filter(); });
    for (const text of [row[1].toLocaleString("en"), duration(row[2]), row[3]]) make("td", text, line);
  }
  if (data.names > data.totals.length) make("p", `… and ${(data.names - data.totals.length).toLocaleString("en")} more names`, panel);
  make("h3", `Critical path: ${data.path.length.toLocaleString("en")} tasks`, panel);
  const list = make("ul", null, panel);
  for (const i of data.path.slice(0, MOST_ROWS)) {
    const row = make("li", null, list);
    link(T[data.key[i]], row, () => choose(i));
    make("small", ` ${duration(data.time[i])}`, row);
  }
  if (data.path.length > MOST_ROWS) make("li", `… and ${(data.path.length - MOST_ROWS).toLocaleString("en")} more`, list);
}

// ---- open a fold -----------------------------------------------------------------------------------------
let opened = null;
function element(tag, parent, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}
function toggle(fold) {
  document.getElementById("members")?.remove();
  if (opened === fold) { opened = null; return; }
  opened = fold;
  const home = boxes.get(fold);
  const at = home.getBBox();
  const shown = members[fold].slice(0, MOST_MEMBERS);
  const [width, height, gap] = [176, 46, 10];
  const columns = Math.max(1, Math.min(shown.length, Math.round(Math.sqrt(shown.length * 2.5 * (height + gap) / (width + gap)))));
  const rows = Math.ceil(shown.length / columns);
  const room = { x: at.x, y: at.y + at.height + 12, width: columns * (width + gap) + gap, height: rows * (height + gap) + gap + 24 };
  const group = element("g", home.parentNode, { id: "members" });
  element("rect", group, { ...room, rx: 8 });
  const more = members[fold].length > shown.length ? `, the first ${shown.length.toLocaleString("en")} are shown` : "";
  element("text", group, { x: room.x + gap, y: room.y + 19 }, `${data.folds[fold].title}: ${members[fold].length.toLocaleString("en")} tasks${more}`);
  const pattern = home.querySelector(":scope > :is(rect, polygon):last-of-type");
  const cut = (text) => (text.length > 22 ? `${text.slice(0, 21)}…` : text);
  shown.forEach((i, k) => {
    const x = room.x + gap + (k % columns) * (width + gap);
    const y = room.y + gap + 20 + Math.floor(k / columns) * (height + gap);
    const one = task(i);
    const member = element("g", group, { class: "member", "data-task": i });
    element("title", member, {}, `${one.key}\n${one.directive} on ${one.place}: ${one.state}`);
    element("rect", member, { x, y, width, height, rx: 4, fill: data.fills[one.phase], stroke: pattern.getAttribute("stroke"), "stroke-width": one.critical ? 3 : 1.2 });
    element("text", member, { x: x + 8, y: y + 19, "font-weight": 600 }, (one.critical ? "★ " : "") + cut(one.key));
    element("text", member, { x: x + 8, y: y + 36 }, `${cut(one.state)}  ${duration(one.time)}`);
  });
  filter();
  fit({ x: room.x + data.margin - 40, y: at.y + data.margin - 40, width: room.width + 80, height: room.height + at.height + 92 });
}

// ---- search and filter -----------------------------------------------------------------------------------
const lower = T.map((text) => text.toLowerCase());
function passes(i) {
  const words = search.value.trim().toLowerCase();
  if (device.value && T[data.device[i]] !== device.value) return false;
  return !words || lower[data.name[i]].includes(words) || lower[data.key[i]].includes(words);
}
let matches = [];
let next = 0;
function filter() {
  const active = search.value.trim() !== "" || device.value !== "";
  const hit = new Set();
  matches = [];
  if (active) {
    for (let i = 0; i < count; i++) {
      if (passes(i)) { matches.push(i); hit.add(data.fold[i]); }
    }
  }
  next = 0;
  for (const [fold, group] of boxes) {
    group.classList.toggle("dim", active && !hit.has(fold));
    group.classList.toggle("found", active && hit.has(fold));
  }
  for (const line of svg.querySelectorAll(".edge, .bundle")) {
    const ends = (side) => line.dataset[side].split(" ").some((fold) => hit.has(Number(fold)));
    line.classList.toggle("dim", active && !(ends("sources") && ends("targets")));
  }
  for (const group of svg.querySelectorAll(".member")) {
    const yes = passes(Number(group.dataset.task));
    group.classList.toggle("dim", active && !yes);
    group.classList.toggle("found", active && yes);
  }
  status.textContent = active ? `${matches.length.toLocaleString("en")} of ${count.toLocaleString("en")} tasks` : data.summary;
}
function forward() {
  if (!matches.length) return;
  choose(matches[next % matches.length]);
  next += 1;
  status.textContent = `${(((next - 1) % matches.length) + 1).toLocaleString("en")} of ${matches.length.toLocaleString("en")} found`;
}

// ---- wiring ----------------------------------------------------------------------------------------------
for (const name of data.devices) make("option", name, device, { value: name });
search.addEventListener("input", filter);
device.addEventListener("change", filter);
search.addEventListener("keydown", (event) => { if (event.key === "Enter") forward(); });
document.getElementById("fit").addEventListener("click", () => fit());
document.getElementById("closer").addEventListener("click", () => zoom(1.4));
document.getElementById("farther").addEventListener("click", () => zoom(1 / 1.4));
stage.addEventListener("click", (event) => {
  if (dragged) return;
  const member = event.target.closest(".member");
  if (member) { choose(Number(member.dataset.task), { move: false }); return; }
  const group = event.target.closest("[data-fold]");
  if (group) chooseFold(Number(group.dataset.fold));
  else if (!event.target.closest("#members")) overview();
});
stage.addEventListener("dblclick", (event) => {
  const group = event.target.closest(".fold");
  if (group) { toggle(Number(group.dataset.fold)); chooseFold(Number(group.dataset.fold)); }
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select")) {
    if (event.key === "Escape") { search.value = ""; device.value = ""; filter(); event.target.blur(); }
    return;
  }
  const step = 80 / view.scale;
  const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] };
  if (moves[event.key]) { view.x += moves[event.key][0]; view.y += moves[event.key][1]; show(); }
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "0") fit();
  else if (event.key === "/") { event.preventDefault(); search.focus(); }
  else if (event.key === "Escape") { document.getElementById("members")?.remove(); opened = null; overview(); }
});
overview();
filter();
fit();
