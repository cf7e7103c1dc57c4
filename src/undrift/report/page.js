// Of the reports and the live page. Tables: a click on a header sorts, three buttons copy. Figures: PNG and CSV. Dark and light.

function numberIn(text) {
  const found = text.replace('−', '-').match(/^[+]?(-?[\d.]+(e[-+]?\d+)?)/i);
  return found ? parseFloat(found[1]) : null;
}

function sortBy(table, column, header, again = false) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map(row => {
    const text = row.cells[column] ? row.cells[column].textContent.trim() : '';
    return { row, text, number: numberIn(text) };
  });
  const numeric = 2 * rows.filter(r => r.number !== null).length >= rows.length;
  const before = header.getAttribute('aria-sort');
  const down = again ? before === 'descending' : before ? before === 'ascending' : numeric;  // first the largest, or A
  const sign = down ? -1 : 1;
  rows.sort((a, b) => numeric
    ? (a.number === null) - (b.number === null) || sign * (a.number - b.number)
    : sign * a.text.localeCompare(b.text));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
  header.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  if (rows.some((r, place) => body.rows[place] !== r.row)) rows.forEach(r => body.appendChild(r.row));
}

const LATEX = { '±': '$\\pm$', '−': '$-$', '—': '---', 'ρ': '$\\rho$', 'ε': '$\\epsilon$', '✓': '$\\checkmark$' };
const formats = {
  Markdown: table => {
    const lines = table.map(row => '| ' + row.map(cell => cell.replace(/\|/g, '\\|')).join(' | ') + ' |');
    lines.splice(1, 0, '|' + table[0].map((_, i) => i ? '---:' : '---').join('|') + '|');
    return lines.join('\n');
  },
  LaTeX: table => {
    const plain = cell => cell.replace(/\\/g, '\\textbackslash ').replace(/([&%$#_{}])/g, '\\$1').replace(/[±−—ρε✓]/g, c => LATEX[c]);
    const [head, ...rows] = table.map(row => row.map(plain).join(' & ') + ' \\\\');
    const columns = 'l' + 'r'.repeat(table[0].length - 1);
    return [`\\begin{tabular}{${columns}}`, '\\hline', head, '\\hline', ...rows, '\\hline', '\\end{tabular}'].join('\n');
  },
  CSV: table => table.map(row =>
    row.map(cell => /[",\n]/.test(cell) ? '"' + cell.replace(/"/g, '""') + '"' : cell).join(',')).join('\n'),
};

function copy(text, button) {
  const done = () => {
    const name = button.textContent;
    button.textContent = 'copied';
    setTimeout(() => { button.textContent = name; }, 1200);
  };
  const withTextArea = () => {  // fallback: browsers deny the clipboard to pages opened from files
    const area = document.createElement('textarea');
    area.value = text;
    document.body.appendChild(area);
    area.select();
    document.execCommand('copy');
    area.remove();
    done();
  };
  if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(done, withTextArea);
  else withTextArea();
}

// A figure drawn while its <details> was closed has no width yet.
document.addEventListener('toggle', () => window.dispatchEvent(new Event('resize')), true);

function button(name, action, title) {
  const made = document.createElement('button');
  made.type = 'button';
  made.textContent = name;
  if (title) made.title = title;
  made.onclick = () => action(made);
  return made;
}

function prepareTable(table) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    header.tabIndex = 0;
    header.title = 'sort';
    header.onclick = () => sortBy(table, column, header);
    header.onkeydown = event => { if (event.key === 'Enter') header.click(); };
  });
  const bar = document.createElement('div');
  bar.className = 'copy';
  bar.append('copy as');
  for (const [name, format] of Object.entries(formats)) {
    bar.append(button(name, pressed => {
      const shown = [...table.rows].filter(row => !row.hidden);
      const cells = shown.map(row => [...row.cells].map(cell => cell.textContent.trim()));
      table.dataset.copied = format(cells);
      copy(table.dataset.copied, pressed);
    }));
  }
  table.closest('.wide').after(bar);
}

// ---- figures ----

const theme = () => document.documentElement.dataset.theme;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The layout in the page's colours. The figures themselves are made for light pages.
function themed(layout) {
  const [ink, paper, grid, raised] = ['figure', 'paper', 'grid', 'raised'].map(colour);
  const own = (layout.template && layout.template.layout) || {};
  const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
  const around = { backgroundcolor: paper, gridcolor: grid, color: ink };
  const template = { ...own, font: { ...own.font, color: ink }, paper_bgcolor: paper, plot_bgcolor: paper,
    xaxis: { ...own.xaxis, ...axis }, yaxis: { ...own.yaxis, ...axis }, hoverlabel: { ...own.hoverlabel, bgcolor: raised },
    shapedefaults: { line: { color: ink } }, modebar: { bgcolor: 'rgba(0,0,0,0)', color: ink },
    updatemenudefaults: { bgcolor: raised, bordercolor: grid }, sliderdefaults: { bgcolor: raised, bordercolor: grid },
    scene: { xaxis: around, yaxis: around, zaxis: around } };
  // Below a narrow figure the legend has a line per entry, and would cover the axis.
  const legend = innerWidth < 600 && layout.legend ? { legend: { ...layout.legend, y: -0.35, font: { size: 11 } } } : {};
  return { ...layout, ...legend, template: { ...layout.template, layout: template } };
}

const drawnFigures = () => [...document.querySelectorAll('.plotly-graph-div.js-plotly-plot')];
const titleOf = div => div.dataset.title || div.closest('section')?.querySelector('h3, h2')?.textContent || div.id;

function figureRows(div) {
  const cell = value => value === null || value === undefined || Number.isNaN(value) ? '' : String(value);
  const rows = [['figure', 'line', 'x', 'y', 'z']];
  for (const trace of div._fullData || []) {
    if (trace.hoverinfo === 'skip' && trace.fill === 'toself') continue;  // a band: its line has the values
    const add = (x, y, z) => rows.push([titleOf(div), trace.name || '', cell(x), cell(y), cell(z)]);
    if (trace.z) [...trace.z].forEach((line, i) => [...line].forEach((z, j) => add((trace.x || [])[j] ?? j, (trace.y || [])[i] ?? i, z)));
    else [...(trace.x || trace.y || [])].forEach((x, i) => add((trace.x || [])[i] ?? i, (trace.y || [])[i], ''));
  }
  return rows;
}

function save(name, text, kind) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const fileName = div => (div.id.replace(/-plot$/, '') || 'figure');

// PNG and CSV under a figure. Once per figure.
function prepareFigure(div) {
  if (div.dataset.prepared) return;
  div.dataset.prepared = 'yes';
  const bar = document.createElement('div');
  bar.className = 'copy';
  bar.append('save as',
    button('PNG', () => Plotly.downloadImage(div, { format: 'png', scale: 2, filename: fileName(div) })),
    button('CSV', () => { div.dataset.saved = formats.CSV(figureRows(div)); save(fileName(div) + '.csv', div.dataset.saved, 'text/csv'); }));
  div.after(bar);
}

// ---- dark and light ----

const wanted = matchMedia('(prefers-color-scheme: dark)');
function kept() {
  try { return localStorage.getItem('undrift-theme'); } catch { return null; }  // a file may have no storage
}
function setTheme(name) {
  const before = theme();
  document.documentElement.dataset.theme = name;
  if (before !== name && window.Plotly) drawnFigures().forEach(div => Plotly.react(div, div.data, themed(div.layout)));
}
function toggleTheme() {
  const next = theme() === 'dark' ? 'light' : 'dark';
  try { localStorage.setItem('undrift-theme', next); } catch { /* it holds for this page */ }
  setTheme(next);
}
document.documentElement.dataset.theme = kept() || (wanted.matches ? 'dark' : 'light');
wanted.addEventListener('change', () => { if (!kept()) setTheme(wanted.matches ? 'dark' : 'light'); });
let printedFrom = 'light';
addEventListener('beforeprint', () => { printedFrom = theme(); setTheme('light'); });
addEventListener('afterprint', () => setTheme(printedFrom));

document.addEventListener('DOMContentLoaded', () => {
  document.querySelectorAll('table.rows').forEach(prepareTable);
  const pressed = button('dark / light', toggleTheme, 'switch between dark and light (t)');
  pressed.className = 'theme';
  document.body.prepend(pressed);
  drawnFigures().forEach(prepareFigure);
  if (theme() === 'dark') drawnFigures().forEach(div => Plotly.react(div, div.data, themed(div.layout)));
});
