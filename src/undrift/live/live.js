// Puts what the server sends into the page: markup is compared node by node, so that selected text, open details, sorted
// tables and zoomed figures stay as they are. Only ours: nothing is fetched from another host.

const KEPT = ['open', 'aria-sort', 'hidden', 'tabindex', 'title', 'style', 'data-prepared', 'data-copied', 'data-saved'];
const main = () => document.querySelector('main');
const isOurs = node => node.nodeType === 1 && (node.classList.contains('copy') || node.classList.contains('js-only'));
const keyOf = node => node.nodeType === 1 ? node.id || node.dataset.key || null : null;

function morph(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) return old.replaceWith(made);
  if (old.nodeType !== 1) { if (old.data !== made.data) old.data = made.data; return; }
  if (old.classList.contains('plotly-graph-div')) { old.dataset.title = made.dataset.title; return; }
  if (old.outerHTML === made.outerHTML) return;
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    if (!made.hasAttribute(name) && !KEPT.includes(name) && !(name === 'class' && old.matches('tr, a'))) old.removeAttribute(name);
  }
  if (old.nodeName === 'INPUT') old.checked = made.hasAttribute('checked');
  else morphChildren(old, made);
}

function morphChildren(old, made) {
  const before = [...old.childNodes].filter(node => !isOurs(node));
  const keyed = new Map(before.filter(keyOf).map(node => [keyOf(node), node]));
  const plain = before.filter(node => !keyOf(node));
  const sorted = old.nodeName === 'TBODY' && old.parentNode.querySelector('th[aria-sort]');
  const kept = new Set();
  let place = old.firstChild;
  for (const child of [...made.childNodes]) {
    while (place && (isOurs(place) || (kept.has(place)))) place = place.nextSibling;
    let match = keyOf(child) ? keyed.get(keyOf(child)) : plain.shift();
    if (match && match.nodeName === child.nodeName) {
      kept.add(match);
      if (match !== place && !sorted) old.insertBefore(match, place);
      else if (match === place) place = place.nextSibling;
      morph(match, child);
    } else {
      if (match) plain.unshift(match);
      kept.add(child);
      old.insertBefore(child, sorted ? null : place);
    }
  }
  for (const node of before) if (!kept.has(node) && node.parentNode === old) node.remove();
}

function parsed(markup) {
  const made = document.createElement('template');
  made.innerHTML = markup;
  return made.content;
}

function update(message) {
  const selected = chosen();
  if (message.page !== undefined) {
    const made = document.createElement('main');
    made.append(parsed(message.page));
    morphChildren(main(), made);
  }
  if (message.quick !== undefined) for (const section of [...parsed(message.quick).children]) {
    const old = document.getElementById(section.id);
    if (old) morph(old, section); else main().append(section);
  }
  for (const [name, figure] of Object.entries(message.figures || {})) figures.set(`${name}-plot`, figure);
  if (picked) mark(selected);
  prepare();
  draw();
}

// Tables and filters of markup that has just arrived.
function prepare() {
  main().querySelectorAll('table.rows').forEach(table => {
    if (!table.dataset.prepared) { table.dataset.prepared = 'yes'; prepareTable(table); }
    const header = table.querySelector('th[aria-sort]');
    if (header) sortBy(table, header.cellIndex, header, true);
  });
  filter();
}

// ---- figures ----

const figures = new Map();  // what is to be drawn, by the id of its place

function draw() {
  if (!window.Plotly) return;
  for (const [id, figure] of figures) {
    const div = document.getElementById(id);
    if (!div) continue;
    const inDetails = div.closest('details');
    if (inDetails && !inDetails.open) continue;  // it has no width; drawn when it is opened
    figures.delete(id);
    const layout = { ...figure.layout, uirevision: 'kept', datarevision: Date.now() };
    Plotly.react(div, figure.data, themed(layout), CONFIG).then(() => prepareFigure(div));
  }
}

const CONFIG = { displayModeBar: 'hover', displaylogo: false, showSendToCloud: false, plotlyServerURL: '', responsive: true };
document.addEventListener('toggle', event => {
  draw();
  if (event.target.dataset && event.target.querySelector('[data-labels]')) showLabels(event.target.querySelector('[data-labels]'));
}, true);

async function showLabels(place) {
  if (place.dataset.asked) return;
  place.dataset.asked = 'yes';
  const answer = await (await fetch(`/labels?id=${encodeURIComponent(place.dataset.labels)}`)).json();
  if (answer.sentence) { place.textContent = answer.sentence; return; }
  const div = document.createElement('div');
  div.className = 'plotly-graph-div';
  div.id = 'labels-plot';
  div.dataset.title = answer.title;
  place.replaceChildren(div);
  figures.set('labels-plot', answer);
  draw();
}

// ---- selecting and filtering ----

let picked = false;  // whether the reader has chosen which runs are drawn
const boxes = () => [...document.querySelectorAll('[data-select]')];
const chosen = () => boxes().filter(box => box.checked).map(box => box.dataset.select);
const mark = keys => boxes().forEach(box => { box.checked = keys.includes(box.dataset.select); });

function filter() {
  const fields = [...document.querySelectorAll('[data-filter]')];
  const table = document.querySelector('#table table');
  if (!table) return;
  for (const row of table.tBodies[0].rows) {
    row.hidden = fields.some(field => {
      const text = row.cells[field.dataset.filter].textContent.trim(), asked = field.value.trim();
      return asked && (field.dataset.exact ? text !== asked : !text.toLowerCase().includes(asked.toLowerCase()));
    });
  }
}

document.addEventListener('input', event => { if (event.target.dataset.filter) filter(); });
document.addEventListener('change', event => { if (event.target.dataset.select) { picked = true; ask(); } });
document.addEventListener('click', event => {
  if (event.target.dataset.clear) { mark([]); picked = false; ask(); }
  if (event.target.dataset.x) { event.preventDefault(); axis = event.target.dataset.x; ask(); }
});

// ---- the connection ----

let source = null, axis = null;

function ask() {
  const address = new URL(main().dataset.events, location.href);
  if (picked) address.searchParams.set('select', chosen().join('\n'));
  if (axis) address.searchParams.set('x', axis);
  if (source) source.close();
  source = new EventSource(address);
  source.onopen = () => say('live', false);
  source.onmessage = event => update(JSON.parse(event.data));
  source.onerror = () => say('not connected: `undrift watch` has ended, or is not reached; what is shown stays', true);
}

function say(text, lost) {
  const place = document.getElementById('connection');
  place.textContent = text;
  place.classList.toggle('lost', lost);
}

// ---- keys ----

let current = -1;
function move(step) {
  const rows = [...(document.querySelector('main table.rows')?.closest('main').querySelectorAll('tbody tr') || [])].filter(row => !row.hidden && row.querySelector('a, [data-select]'));
  if (!rows.length) return;
  current = Math.max(0, Math.min(rows.length - 1, current + step));
  document.querySelectorAll('tr.current').forEach(row => row.classList.remove('current'));
  rows[current].classList.add('current');
  rows[current].scrollIntoView({ block: 'nearest' });
}
const onRow = what => document.querySelector(`tr.current ${what}`)?.click();
const KEYS = {
  j: () => move(1), k: () => move(-1), Enter: () => onRow('a'), x: () => onRow('[data-select]'), t: toggleTheme,
  '/': () => document.getElementById('filter-name')?.focus(), u: () => document.querySelector('a[rel=up]')?.click(),
  '?': () => document.getElementById('keys').showModal(),
};
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches('input[type=search], select')) { if (event.key === 'Escape') event.target.blur(); return; }
  if (event.key === 'Enter' && event.target !== document.body) return;
  const action = KEYS[event.key];
  if (action) { event.preventDefault(); action(); }
});

document.addEventListener('DOMContentLoaded', () => {
  const pressed = button('keys', () => KEYS['?'](), 'keys (?)');
  pressed.className = 'js-only';
  document.querySelector('nav').append(pressed);
  document.querySelectorAll('table.rows').forEach(table => { table.dataset.prepared = 'yes'; });
  filter();
  ask();
  document.querySelector('script[src$="plotly.js"]').addEventListener('load', draw);
  if (window.Plotly) draw();
});
