"""A self-contained HTML page: plotly inlined, no network, readable on a phone, printable, tables to sort and copy."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

    head = f"<style>{asset('page.css')}</style><script>{get_plotlyjs()}</script><script>{asset('page.js')}</script>"
    headed = [(section[0], section[2]) for section in sections if len(section) > 2]
    contents = "".join(f"<a href='#{name}'>{html.escape(heading)}</a>" for name, heading in headed)
    body = "\n".join(element(*section) for section in sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        document(title, head, f"{f'<nav>{contents}</nav>' if contents else ''}\n{body}\n"), encoding="utf-8"
    )


def document(title: str, head: str, body: str) -> str:
    """The frame of every page: reports and live pages."""
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'><link rel='icon' href='data:,'>"
        f"{head}</head><body><h1>{html.escape(title)}</h1>{body}</body></html>"
    )


def asset(name: str) -> str:
    """The text of page.css or page.js."""
    return (files("undrift.report") / name).read_text(encoding="utf-8")


Draw = Callable[[str, Any], str]  # (id of a figure, figure) -> markup


def element(name: str, content: Any, heading: str = "", draw: Draw | None = None) -> str:
    head = f"<h2>{html.escape(heading)}</h2>" if heading else ""
    return f"<section id='{name}'>{head}{inside(name, content, draw)}</section>"


def headed(section: Section) -> tuple[str, Any, str]:
    """(id, content, heading): the heading is empty where there is none."""
    return section[0], section[1], section[2] if len(section) > 2 else ""


def inside(name: str, content: Any, draw: Draw | None = None) -> str:
    if hasattr(content, "to_dict"):
        return (draw or drawn_here)(name, content)
    if isinstance(content, tuple) and content[0] == "html":
        return content[1]
    if isinstance(content, tuple) and content[0] == "details":
        return f"<details><summary>{html.escape(content[1])}</summary>{inside(name, content[2], draw)}</details>"
    if isinstance(content, tuple):
        return f"<pre>{html.escape(content[1])}</pre>"
    if isinstance(content, str):
        return f"<p class='note'>{'<br>'.join(html.escape(line) for line in content.splitlines())}</p>"
    if isinstance(content, list) and content and isinstance(content[0], tuple):
        return "\n".join(element(*headed(section), draw) for section in content)
    return table(content.rows, content.keys) if isinstance(content, Table) else table(content)


def drawn_here(name: str, figure: Any) -> str:
    """A figure with its values and the call that draws it."""
    from plotly.io import to_html

    from undrift.report.plots import CONFIG

    title, shown = titled(figure)
    drawn = to_html(
        shown, full_html=False, include_plotlyjs=False, config=CONFIG, div_id=f"{name}-plot", validate=False
    )
    return f"<h3>{html.escape(title)}</h3>{drawn}"


def titled(figure: Any) -> tuple[str, dict[str, Any]]:
    """(the title, the figure without it): a title inside the figure is cut off on a phone. Names in it are plain text:
    plotly would take markup in them for markup."""
    shown = figure.to_dict()
    layout = shown["layout"]
    title, margin = layout.pop("title", {}).get("text", ""), layout.get("margin", {})
    layout["margin"] = {**margin, "t": max(28, margin.get("t", 48) - 20)}
    for trace in shown["data"]:
        for key in ("name", "text", "x", "y", "legendgroup"):
            if key in trace:
                trace[key] = plain(trace[key])
    for menu in layout.get("updatemenus", ()):
        for item in menu.get("buttons", ()):
            item["label"] = plain(item.get("label", ""))
    return title, shown


def plain(value: Any) -> Any:
    """A text, or the texts in a list, without what plotly would read as markup."""
    if isinstance(value, str):
        return html.escape(value, quote=False) if "<" in value or "&" in value else value
    if isinstance(value, (list, tuple)):
        return [plain(item) if isinstance(item, str) else item for item in value]
    return value


@dataclass(frozen=True)
class Table:
    """A table whose rows have keys, so that a live page updates them one by one. A cell is a text or ("html", markup)."""

    rows: Sequence[Sequence[Any]]
    keys: Sequence[str]


def table(rows: Sequence[Sequence[Any]], keys: Sequence[str] = ()) -> str:
    head, *lines = rows
    numeric = [is_numeric([line[i] for line in lines]) for i in range(len(head))]
    opened = [f"<tr data-key='{html.escape(key)}'>" for key in keys] or ["<tr>"] * len(lines)
    body = "".join(
        f"{tr}{''.join(cell('td', *pair) for pair in zip(line, numeric))}</tr>" for tr, line in zip(opened, lines)
    )
    titles = "".join(cell("th", *pair) for pair in zip(head, numeric))
    return f"<div class='wide'><table class='rows'><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"


def is_numeric(column: Sequence[Any]) -> bool:
    """Whether more than three quarters of the cells that are not empty are numbers."""
    filled = [text for text in column if text not in ("", "—")]
    return sum(isinstance(text, str) and bool(NUMBER.match(text)) for text in filled) > 0.75 * len(filled)


def cell(tag: str, text: Any, numeric: bool) -> str:
    """Numbers are aligned right, text left. Long text wraps."""
    if isinstance(text, tuple):
        return f"<{tag}>{text[1]}</{tag}>"
    kind = " class=long" if len(text) > 60 else " class=number" if numeric else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"
