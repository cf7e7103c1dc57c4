// Tables: a click on a header sorts, three buttons copy.

function numberIn(text) {
  const found = text.replace('−', '-').match(/^[+]?(-?[\d.]+(e[-+]?\d+)?)/i);
  return found ? parseFloat(found[1]) : null;
}

function sortBy(table, column, header) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map(row => {
    const text = row.cells[column] ? row.cells[column].textContent.trim() : '';
    return { row, text, number: numberIn(text) };
  });
  const numeric = 2 * rows.filter(r => r.number !== null).length >= rows.length;
  const before = header.getAttribute('aria-sort');
  const down = before ? before === 'ascending' : numeric;  // numbers start with the largest, text with A
  const sign = down ? -1 : 1;
  rows.sort((a, b) => numeric
    ? (a.number === null) - (b.number === null) || sign * (a.number - b.number)
    : sign * a.text.localeCompare(b.text));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute('aria-sort');
  header.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  rows.forEach(r => body.appendChild(r.row));
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

document.addEventListener('DOMContentLoaded', () => document.querySelectorAll('table.rows').forEach(table => {
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
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = name;
    button.onclick = () => {
      const cells = [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim()));
      table.dataset.copied = format(cells);
      copy(table.dataset.copied, button);
    };
    bar.appendChild(button);
  }
  table.closest('.wide').after(bar);
}));
