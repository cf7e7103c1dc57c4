"""A self-contained HTML page: plotly inlined, no network, readable on a phone, printable."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

STYLE = """
:root{color-scheme:light}body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1100px;padding:1rem;color:#1b1e23}
h1{font-size:1.5rem;margin:.5rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #e3e6ea}
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #9aa3ad}p.note,.legend{color:#59636e;font-size:.9rem}
pre{background:#f4f6f8;padding:.7rem;overflow-x:auto;font-size:.85rem}@media print{body{max-width:none}}
"""


def write(path: Path, title: str, sections: Sequence[tuple[str, Any]]) -> None:
    """`sections`: (id, figure | table rows | text | ("pre", text) | ("html", markup)); each becomes an element with that id."""
    from plotly.offline import get_plotlyjs

    body = "\n".join(element(name, content) for name, content in sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'><link rel='icon' href='data:,'>"
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body><h1>{html.escape(title)}</h1>\n{body}\n</body></html>"
    )


def element(name: str, content: Any) -> str:
    from undrift.study.plots import CONFIG

    if hasattr(content, "to_html"):
        inside = content.to_html(full_html=False, include_plotlyjs=False, config=CONFIG, div_id=f"{name}-plot")
    elif isinstance(content, tuple):
        inside = content[1] if content[0] == "html" else f"<pre>{html.escape(content[1])}</pre>"
    elif isinstance(content, str):
        inside = f"<p class='note'>{'<br>'.join(html.escape(line) for line in content.splitlines())}</p>"
    else:
        head, *rows = content
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        inside = f"<div class='wide'><table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table></div>"
    return f"<section id='{name}'>{inside}</section>"
