"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const space = document.getElementById("blank").namespaceURI;
const by = id => document.getElementById(id);

// Text from the table is only ever set as text, never read as HTML.
function make(name, given = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

function draw(name, given = {}, ...children) {
  const element = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const tip = words => draw("title", {}, words);
const percent = share => share > 0 && share < 0.001 ? "< 0.1 %" : `${+(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
const cut = (words, room) => words.length > room ? words.slice(0, Math.max(room - 1, 1)) + "…" : words;
// Names of many columns begin alike: keep both ends.
const middle = (words, room) => words.length > room ? words.slice(0, Math.ceil((room - 1) / 2)) + "…" + words.slice(-Math.floor((room - 1) / 2)) : words;
const canvas = (width, height, words) =>
  draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words });

function legend(...items) {
  return make("div", { class: "legend" }, ...items.map(([kind, words]) => {
    const item = make("span");
    item.append(make("i", { class: kind }), words);
    return item;
  }));
}

// ---- tables ----

function sortTable(button) {
  const head = button.closest("th"), place = head.cellIndex, body = head.closest("table").tBodies[0];
  const old = head.getAttribute("aria-sort");
  const key = row => row.cells[place].dataset.order, words = row => row.cells[place].textContent.trim();
  const numbers = [...body.rows].some(row => key(row) !== undefined);
  // Numbers begin with the largest, words with the first; empty cells stay last.
  const down = old ? old === "ascending" : numbers;
  const empty = row => numbers ? key(row) === undefined : words(row) === "";
  const order = (a, b) => numbers ? key(a) - key(b) : words(a).localeCompare(words(b), undefined, { numeric: true });
  const rows = [...body.rows].sort((a, b) => empty(a) - empty(b) || (empty(a) ? 0 : (down ? -1 : 1) * order(a, b)));
  head.parentNode.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows);
}

const rowsOfColumns = [...by("all").tBodies[0].rows];
const indexOf = row => +row.querySelector("a").getAttribute("href").slice(2);

function filterColumns() {
  const words = by("find").value.trim().toLowerCase(), kind = by("kind").value, which = by("which").value;
  let shown = 0;
  for (const row of rowsOfColumns) {
    const column = data.columns[indexOf(row)];
    const fits = column.name.toLowerCase().includes(words) && (!kind || column.kind === kind)
      && (which !== "holes" || column.missing > 0) && (which !== "warned" || column.warnings.length > 0);
    row.hidden = !fits;
    shown += fits;
  }
  by("found").textContent = `${shown} of ${rowsOfColumns.length} columns`;
}

// ---- one column ----

function axis(svg, chart, x, y, width) {
  svg.append(draw("line", { class: "ax", x1: x, x2: x + width, y1: y, y2: y }));
  let end = -Infinity;
  for (const [place, words] of chart.ticks) {
    const at = x + place * width, half = 3.6 * words.length;
    if (at - half < end) continue;
    end = at + half + 4;
    const anchor = at - half < 0 ? "start" : at + half > x + width + 8 ? "end" : "middle";
    svg.append(draw("line", { class: "ax", x1: at, x2: at, y1: y, y2: y + 4 }),
      draw("text", { x: at, y: y + 17, "text-anchor": anchor }, words));
  }
  if (chart.unit) svg.append(draw("text", { x: x + width, y: y + 33, "text-anchor": "end" }, chart.unit));
}

function niceStep(size) {
  const power = 10 ** Math.floor(Math.log10(size));
  return power * (size / power >= 5 ? 5 : size / power >= 2 ? 2 : 1);
}

// Written values are orange; where draws stand beside them, for comparison, those are blue.
const besides = chart => chart.written.length > 0;

function histogram(column, width) {
  const chart = column.chart, low = 190, height = low + (chart.unit ? 40 : 24), left = 40, top = 10, span = width - left - 8;
  const svg = canvas(width, height, `Distribution of observed and filled values of ${column.name}`);
  const most = Math.max(...chart.observed, ...chart.filled, ...chart.written, ...chart.draws.flat(), 1e-9), bins = chart.observed.length;
  const x = k => left + span * k / bins, y = share => low - (low - top) * share / most;
  for (let share = niceStep(most / 2.5); share <= most * 1.0001; share += niceStep(most / 2.5)) {
    const at = y(share);
    svg.append(draw("line", { class: "ax", x1: left, x2: left + span, y1: at, y2: at }),
      draw("text", { x: left - 5, y: at + 4, "text-anchor": "end" }, percent(share)));
  }
  const steps = shares => shares.map((s, k) => `${k ? "L" : "M"}${x(k).toFixed(1)},${y(s).toFixed(1)}H${x(k + 1).toFixed(1)}`).join("");
  svg.append(draw("path", { class: "o", d: `M${left},${low}${steps(chart.observed).replace("M", "L")}V${low}Z` }));
  const beside = besides(chart);
  for (const one of chart.draws) svg.append(draw("path", { class: beside ? "dd" : "fd", d: steps(one) }));
  if (column.missing > column.left) {
    svg.append(draw("path", { class: beside ? "dl" : "fl", d: steps(chart.filled) }));
    if (beside) svg.append(draw("path", { class: "fl", d: steps(chart.written) }));
  }
  for (let k = 0; k < bins; k++) {
    svg.append(draw("rect", { class: "hit", x: x(k), width: span / bins, y: top, height: low - top },
      tip(`${chart.edges[k]} to ${chart.edges[k + 1]}: observed ${percent(chart.observed[k])}, ${beside ? `imputed ${percent(chart.written[k])}, draws` : "imputed"} ${percent(chart.filled[k] || 0)}`)));
  }
  axis(svg, chart, left, low, span);
  return svg;
}

function singleCells(column, width) {
  const chart = column.chart, left = 40, span = width - left - 8, step = 6, low = 12 + step * chart.cells.length;
  const svg = canvas(width, low + (chart.unit ? 40 : 24), `${chart.cells.length} filled cells of ${column.name}, each with the range of its draws`);
  chart.cells.forEach(([row, from, middle, to, ...words], k) => {
    const y = 6 + step * k, x = place => left + span * place;
    const beside = words.length > 3;
    const group = draw("g", {}, tip(`row ${row}: ` + (beside ? `imputed ${words[4]}; draws ` : "") + `${words[1]} (${words[0]} to ${words[2]})`));
    group.append(draw("line", { class: beside ? "dv" : "iv", x1: x(from), x2: x(to), y1: y, y2: y }),
      draw("circle", { class: beside ? "d" : "f", cx: x(middle), cy: y, r: 2.4 }));
    if (beside) group.append(draw("rect", { class: "f", x: x(words[3]) - 1.5, y: y - 3, width: 3, height: 6 }));
    svg.append(group);
  });
  axis(svg, chart, left, low, span);
  return svg;
}

function levelBars(column, width) {
  const chart = column.chart, beside = besides(chart), label = Math.min(190, width * 0.34), span = width - label - 58;
  const filled = chart.filled.length > 0, high = chart.high.length > 0, step = beside && filled ? 50 : 36;
  const svg = canvas(width, step * chart.levels.length + 4, `Shares of levels of ${column.name}: ${data.groups.join(", ")}`);
  const most = Math.max(...chart.observed, ...chart.filled, ...chart.written, ...chart.high, 1e-9), x = share => label + span * share / most;
  chart.levels.forEach((level, k) => {
    const y = step * k + 4;
    // Class, shares, and whether the range of draws belongs to them.
    const bars = [["o", chart.observed, false], ...(filled && beside ? [["f", chart.written, false]] : []), ...(filled ? [[beside ? "d" : "f", chart.filled, high]] : [])];
    const group = draw("g", {}, tip(`${level}: ` + bars.map(([, shares], n) => `${data.groups[n]} ${percent(shares[k])}`).join(", ")));
    group.append(draw("text", { class: "ink", x: label - 8, y: y + step / 2, "text-anchor": "end" }, cut(level, Math.floor(label / 7.2))));
    bars.forEach(([kind, shares, range], n) => {
      const top = y + 14 * n, end = range ? Math.max(chart.high[k], shares[k]) : shares[k];
      group.append(draw("rect", { class: kind, x: label, y: top, width: Math.max(x(shares[k]) - label, 1), height: 12, rx: 2 }));
      if (range) group.append(draw("line", { class: "w", x1: x(chart.low[k]), x2: x(chart.high[k]), y1: top + 6, y2: top + 6 }));
      group.append(draw("text", { x: x(end) + 5, y: top + 10 }, percent(shares[k])));
    });
    svg.append(group);
  });
  return svg;
}

function agreement(column, width) {
  const cells = column.sure.cells, height = 120, low = 92, room = Math.min(width, 60 * cells.length + 20), step = room / cells.length;
  const svg = canvas(room, height, `How many of ${cells.length} draws agree, cells of ${column.name}`), most = Math.max(...cells, 1e-9);
  cells.forEach((share, k) => {
    const tall = 68 * share / most;
    svg.append(draw("rect", { class: "f", x: k * step + 4, width: Math.max(step - 8, 2), y: low - tall, height: Math.max(tall, 0.5) }, tip(`${k + 1} of ${cells.length} draws agree: ${percent(share)} of cells`)));
    if (step > 38) svg.append(draw("text", { x: (k + 0.5) * step, y: low - tall - 5, "text-anchor": "middle" }, percent(share)));
    if (cells.length <= 10 || k % 5 === 4 || k === 0) svg.append(draw("text", { x: (k + 0.5) * step, y: low + 16, "text-anchor": "middle" }, String(k + 1)));
  });
  return svg;
}

function facts(column) {
  const table = make("table"), body = make("tbody");
  const head = make("tr", {}, ...["", ...data.groups].map(words => make("th", { scope: "col" }, words)));
  const line = (name, ...cells) => body.append(make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(words => make("td", {}, words))));
  const wide = (name, words) => body.append(make("tr", {}, make("th", { scope: "row" }, name), make("td", { colspan: data.groups.length }, words)));
  const imputed = (column.missing - column.left).toLocaleString("en");
  line("cells", (column.rows - column.missing).toLocaleString("en"), imputed, ...(data.groups.length > 2 ? [`${imputed} × ${data.draws}`] : []));
  for (const row of column.stats) line(...row);
  if (column.held) wide("held-out error", `${column.held[0].toFixed(2)}; ${column.held[1].toFixed(2)} by the ${column.chart && column.chart.type === "levels" ? "most frequent level" : "mean"} (${column.held[2].toLocaleString("en")} cells${column.held[3] === "not known yet" ? ": not known yet" : ""})`);
  if (column.sure && "spread" in column.sure) {
    wide("spread of draws", `${column.sure.spread.toFixed(2)} standard deviations of the column`);
    wide("range of draws", `${column.sure.width} wide, the median cell`);
  }
  if (column.sure && "agreement" in column.sure) wide("draws that agree", `${percent(column.sure.agreement)} on average`);
  if (column.drift) wide("drift", column.drift);
  if (column.told && column.told[0] !== null) wide("told by others", `AUC ${column.told[0].toFixed(2)}` + (column.told[1].length ? `: ${column.told[1].join(", ")}` : ""));
  table.append(make("thead", {}, head), body);
  return table;
}

function describe(place, room) {
  const column = data.columns[place], chart = column.chart, article = make("article");
  const state = column.status === "modelled" ? "" : `, ${column.status}`;
  article.append(make("h3", {}, column.name), make("p", { class: "meta" },
    `${column.kind}${state}; ${column.missing.toLocaleString("en")} of ${column.rows.toLocaleString("en")} cells missing (${percent(column.missing / Math.max(column.rows, 1))})`));
  if (column.warnings.length) article.append(make("ul", {}, ...column.warnings.map(([kind, title, words]) => {
    const item = make("li", {}, make("span", { class: `badge ${kind}` }, title));
    item.append(" ", words);
    return item;
  })));
  const left = make("div"), both = make("div", { class: "pair" }, left, facts(column));
  const width = Math.max(250, Math.floor(room < 620 ? room : (room - 24) * 5 / 8)), filled = column.missing > column.left;
  const colours = data.groups.length > 2 ? ["", "f", "d"] : ["", "f"];
  const named = data.groups.slice(0, filled ? 3 : 1).map((words, k) => [colours[k], words]);
  if (!chart) left.append(make("p", {}, "There is nothing to draw: the column is free text, or was not modelled, or has no values."));
  else if (chart.type === "levels") {
    left.append(legend(...named, ...(chart.high.length ? [["w", "range of draws"]] : [])), levelBars(column, width));
    if (column.sure) left.append(make("h4", {}, `Cells by how many of the ${column.sure.cells.length} draws agree`), agreement(column, width));
  } else {
    left.append(legend(...named), histogram(column, width));
    if (chart.outside > 0) left.append(make("p", { class: "hint" }, `${percent(chart.outside)} of the observed values lie outside the picture.`));
    if (chart.cells.length) left.append(make("h4", {}, `${chart.cells.length === 1 ? "One filled cell" : chart.cells.length + " filled cells"}: median and range of the ${column.sure.draws} draws`), singleCells(column, width), make("p", { class: "hint" }, `If draws are right, ${percent((column.sure.draws - 1) / (column.sure.draws + 1))} of the missing values lie in these ranges.` + (besides(chart) ? " The upright mark is the imputed value. It may lie outside of the range: draws are few, and a mean lies outside of the middle of a skewed distribution." : "")));
  }
  article.append(both);
  return article;
}

const opened = [column => column.missing > column.left, column => column.missing > 0].map(one => data.columns.findIndex(one));
let current = Math.max(0, opened.find(place => place >= 0) ?? 0), every = false;

function showColumn(place, { focus = false } = {}) {
  current = Math.max(0, Math.min(data.columns.length - 1, place));
  by("choose").value = String(current);
  by("before").disabled = current === 0;
  by("after").disabled = current === data.columns.length - 1;
  const room = by("shown").clientWidth || 600;
  by("shown").replaceChildren(...(every ? data.columns.map((_, k) => describe(k, room)) : [describe(current, room)]));
  for (const row of rowsOfColumns) row.toggleAttribute("aria-current", indexOf(row) === current);
  if (focus) {
    by("column").scrollIntoView();
    by("column").focus({ preventScroll: true });
  }
}

function goTo(place) {
  if (place < 0 || place >= data.columns.length) return;
  showColumn(place);
  history.replaceState(null, "", `#c${place}`);
}

function openColumn(place) {
  if (location.hash === `#c${place}`) followHash(); // again
  else location.hash = `c${place}`;
}

function followHash() {
  const found = /^#c(\d+)$/.exec(location.hash);
  if (found) showColumn(+found[1], { focus: true });
}

// ---- what was missing, and the trace ----

function matrix() {
  const { columns, starts, blocks } = data.matrix, room = by("matrix");
  if (!columns.length) return room.closest("figure").remove();
  const names = columns.length <= 40, width = Math.max(260, room.clientWidth), top = names ? 84 : 4;
  const span = width - (names ? 44 : 4), step = span / columns.length, tall = Math.max(2, Math.min(12, 300 / blocks.length));
  const svg = canvas(width, top + tall * blocks.length + 4, `Where ${columns.length} columns are missing, by blocks of rows; the rates are in the table of columns`);
  const paths = Array.from({ length: 10 }, () => ""), every = Math.ceil(16 / step); // names that do not touch
  blocks.forEach((line, i) => [...line].forEach((digit, j) => {
    paths[+digit] += `M${(j * step + 0.5).toFixed(1)},${(top + i * tall).toFixed(1)}h${Math.max(step - 1, 0.5).toFixed(1)}v${tall.toFixed(2)}h${(-Math.max(step - 1, 0.5)).toFixed(1)}z`;
  }));
  paths.forEach((d, digit) => { if (d) svg.append(draw("path", { d, style: `fill:rgb(var(--hole) / ${digit ? 0.14 + 0.8 * digit / 9 : 0.05})` })); });
  columns.forEach((place, j) => {
    const name = data.columns[place].name, x = j * step + step / 2;
    if (names && j % every === 0) svg.append(draw("text", { transform: `translate(${x + 2},${top - 6}) rotate(-50)` }, middle(name, 11)));
    svg.append(draw("rect", { class: "hit", x: j * step, width: step, y: top, height: tall * blocks.length }, tip(`${name}: ${percent(data.columns[place].missing / data.columns[place].rows)} missing`)));
  });
  room.replaceChildren(svg);
}

function together() {
  const { columns, values } = data.together, room = by("together");
  if (columns.length < 2) return by("together-figure").remove();
  // A step is never smaller than a line of text: names would overprint. What is wider than the page scrolls.
  const label = 120, step = Math.max(15, Math.min(34, (room.clientWidth - label - 50) / columns.length)), width = label + step * columns.length + 50;
  const svg = canvas(width, 84 + step * columns.length, "Correlation of missing cells between columns");
  columns.forEach((a, i) => {
    const y = 80 + i * step;
    svg.append(draw("text", { x: label - 6, y: y + step / 2 + 4, "text-anchor": "end" }, middle(data.columns[a].name, 13)),
      draw("text", { transform: `translate(${label + (i + 0.6) * step},74) rotate(-50)` }, middle(data.columns[a].name, 11)));
    columns.forEach((b, j) => {
      const value = values[i][j], x = label + j * step;
      svg.append(draw("rect", { class: "cellbg", x: x + 0.5, y: y + 0.5, width: step - 1, height: step - 1 }));
      if (value === null || i === j) return;
      svg.append(draw("rect", { class: value > 0 ? "pos" : "neg", "fill-opacity": Math.sqrt(Math.min(1, Math.abs(value))).toFixed(2), x: x + 0.5, y: y + 0.5, width: step - 1, height: step - 1 },
        tip(`${data.columns[a].name} and ${data.columns[b].name}: ${value.toFixed(2)}`)));
      // On paper without colours a stroke tells negative ones.
      if (value < 0) svg.append(draw("line", { class: "ng", "stroke-opacity": Math.sqrt(Math.min(1, -value)).toFixed(2), x1: x + 2, x2: x + step - 2, y1: y + step - 2, y2: y + 2 }));
      if (step > 26 && Math.abs(value) >= 0.1) svg.append(draw("text", { class: "ink mark", x: x + step / 2, y: y + step / 2 + 4, "text-anchor": "middle" }, value.toFixed(1).replace("0.", ".").replace("-", "−")));
    });
  });
  room.replaceChildren(svg);
}

function trace() {
  const room = by("trace"), lines = data.trace.filter(line => line[1] !== null);
  if (!room || lines.length < 2) return room && room.closest("figure").remove();
  const width = Math.min(520, Math.max(260, room.clientWidth)), low = 150, left = 44, span = width - left - 20;
  const most = Math.max(...lines.flatMap(line => [line[1], line[2] || 0])), svg = canvas(width, 190, "Error on held-out cells, round by round");
  const x = k => left + span * k / (lines.length - 1), y = value => low - (low - 12) * value / most;
  const path = at => lines.map((line, k) => `${k ? "L" : "M"}${x(k)},${y(line[at])}`).join("");
  svg.append(draw("line", { class: "ax", x1: left, x2: left + span, y1: low, y2: low }), draw("path", { class: "fl", d: path(1) }), draw("path", { class: "base", d: path(2) }));
  lines.forEach((line, k) => svg.append(draw("circle", { class: "f", cx: x(k), cy: y(line[1]), r: line[0] === data.best ? 6 : 3.5 }, tip(`round ${line[0]}: ${line[1]}`)),
    draw("text", { x: x(k), y: low + 18, "text-anchor": "middle" }, String(line[0]))));
  svg.append(draw("text", { x: left - 6, y: y(most) + 4, "text-anchor": "end" }, most.toFixed(2)), draw("text", { x: left + span, y: low + 34, "text-anchor": "end" }, "round of EM"));
  room.replaceChildren(svg, make("p", { class: "hint" }, "Dashed: column means. Large mark: the smallest error."));
}

// ---- keys, clicks, widths ----

function drawAll() {
  if (by("matrix")) matrix();
  if (by("together")) together();
  trace();
  if (data.columns.length) showColumn(current);
}

document.documentElement.classList.add("on");
document.querySelectorAll(".sort").forEach(button => button.addEventListener("click", () => sortTable(button)));
document.querySelector("form.filters").addEventListener("submit", event => {
  event.preventDefault(); // Enter in the search field: open the first that was found
  const row = [...by("all").tBodies[0].rows].find(one => !one.hidden);
  if (row) openColumn(indexOf(row));
});
for (const id of ["find", "kind", "which"]) by(id).addEventListener("input", filterColumns);
by("all").addEventListener("click", event => {
  const row = event.target.closest("tbody tr");
  if (row && !event.target.closest("a")) openColumn(indexOf(row));
});
document.addEventListener("click", event => {
  const link = event.target.closest('a[href^="#c"]');
  if (link && link.getAttribute("href") === location.hash) followHash(); // again
});
by("choose").addEventListener("change", event => goTo(+event.target.value));
by("before").addEventListener("click", () => goTo(current - 1));
by("after").addEventListener("click", () => goTo(current + 1));
by("every").addEventListener("click", event => {
  every = !every;
  event.target.setAttribute("aria-pressed", String(every));
  showColumn(current);
});
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !typing) { event.preventDefault(); by("find").focus(); }
  if (event.key === "Escape" && event.target === by("find")) { by("find").value = ""; filterColumns(); }
  if (!typing && by("column").contains(event.target) && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
    event.preventDefault();
    goTo(current + (event.key === "ArrowLeft" ? -1 : 1));
  }
});
document.querySelectorAll("[data-copy]").forEach(button => button.addEventListener("click", () => {
  const range = document.createRange();
  range.selectNodeContents(by(button.dataset.copy));
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  if (document.execCommand("copy")) button.textContent = "Copied";
}));
addEventListener("hashchange", followHash);
let width = innerWidth, waiting;
addEventListener("resize", () => {
  if (innerWidth === width) return; // phones resize in height while scrolling
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(drawAll, 150);
});
filterColumns();
drawAll();
followHash();
