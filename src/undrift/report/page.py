"""A self-contained HTML page: plotly inlined, no network, readable on a phone, printable, tables to sort and copy."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"[+−-]?\d")
Section = Sequence[Any]  # (id, content) or (id, content, heading)


def write(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page. Each section becomes an element with its id. Sections with a heading are listed at the top.

    `content` is a figure, a table (list of rows), a text, ("pre", text), ("html", markup), ("details", title, content) that
    opens with a click, or a list of (id, content) that belong together."""
    from plotly.offline import get_plotlyjs

    style, script = ((files("undrift.report") / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    headed = [(section[0], section[2]) for section in sections if len(section) > 2]
    contents = "".join(f"<a href='#{name}'>{html.escape(heading)}</a>" for name, heading in headed)
    body = "\n".join(element(*section) for section in sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'><link rel='icon' href='data:,'>"
        f"<style>{style}</style><script>{get_plotlyjs()}</script><script>{script}</script></head><body>"
        f"<h1>{html.escape(title)}</h1>{f'<nav>{contents}</nav>' if contents else ''}\n{body}\n</body></html>",
        encoding="utf-8",
    )


def element(name: str, content: Any, heading: str = "") -> str:
    head = f"<h2>{html.escape(heading)}</h2>" if heading else ""
    return f"<section id='{name}'>{head}{inside(name, content)}</section>"


def inside(name: str, content: Any) -> str:
    from plotly.io import to_html

    from undrift.report.plots import CONFIG

    if hasattr(content, "to_html"):
        shown = content.to_dict()
        layout = shown["layout"]
        title, margin = layout.pop("title", {}).get("text", ""), layout.get("margin", {})
        layout["margin"] = {**margin, "t": max(28, margin.get("t", 48) - 20)}
        drawn = to_html(
            shown, full_html=False, include_plotlyjs=False, config=CONFIG, div_id=f"{name}-plot", validate=False
        )
        return f"<h3>{html.escape(title)}</h3>{drawn}"  # a title inside the figure is cut off on a phone
    if isinstance(content, tuple) and content[0] == "html":
        return content[1]
    if isinstance(content, tuple) and content[0] == "details":
        return f"<details><summary>{html.escape(content[1])}</summary>{inside(name, content[2])}</details>"
    if isinstance(content, tuple):
        return f"<pre>{html.escape(content[1])}</pre>"
    if isinstance(content, str):
        return f"<p class='note'>{'<br>'.join(html.escape(line) for line in content.splitlines())}</p>"
    if content and isinstance(content[0], tuple):
        return "\n".join(element(*section) for section in content)
    return table(content)


def table(rows: Sequence[Sequence[str]]) -> str:
    head, *lines = rows
    numeric = [is_numeric([line[i] for line in lines]) for i in range(len(head))]
    body = "".join(f"<tr>{''.join(cell('td', *pair) for pair in zip(line, numeric))}</tr>" for line in lines)
    titles = "".join(cell("th", *pair) for pair in zip(head, numeric))
    return f"<div class='wide'><table class='rows'><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"


def is_numeric(column: Sequence[str]) -> bool:
    """Whether more than three quarters of the cells that are not empty are numbers."""
    filled = [text for text in column if text not in ("", "—")]
    return sum(bool(NUMBER.match(text)) for text in filled) > 0.75 * len(filled)


def cell(tag: str, text: str, numeric: bool) -> str:
    """Numbers are aligned right, text left. Long text wraps."""
    kind = " class=long" if len(text) > 60 else " class=number" if numeric else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"
