"""Render everything that is said about results from the result files: `docs/results/run tables`.

    python docs/results/render.py           # write the pages, README's results and the findings of `undrift methods`
    python docs/results/render.py --check   # say which of them are not what the files give
    python docs/results/render.py --pages   # also the HTML page of every preset's results

A template is a page with expressions between double braces. The expressions are Python (`expressions.py`). The verdict chooses
the words, so nothing here says who is ahead.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent
ROOT = RESULTS.parents[1]
TEMPLATES = RESULTS / "templates"
WIDTH = 120
BEGIN, END = "<!-- {}: rendered by docs/results/run tables -->", "<!-- end of {} -->"
PARTS = {  # templates that are a part of a page: the page, and the name in its marks
    "front": ("README.md", "results"), "speed": ("README.md", "speed"), "tradeoff": ("docs/evaluation.md", "trade-off"),
    "peers": ("docs/benchmarks.md", "peers"),
}  # fmt: skip
sys.path.insert(0, str(RESULTS))  # its neighbours


def filled(template: str, names: dict[str, Any]) -> str:
    """The template with its expressions evaluated. They are the project's own: a template is code."""
    return re.sub(r"\{\{(.+?)\}\}", lambda found: str(eval(found[1].strip(), dict(names))), template, flags=re.DOTALL)


def wrapped(text: str) -> str:
    """Paragraphs and list items at 120 characters; tables, code, headings and pictures stay as they are."""
    out, code = list[str](), False
    for block in re.split(r"(\n\n|(?<=\n)(?=- )|```[\s\S]*?```)", text):
        code = block.startswith("```")
        plain = not code and block.strip() and not re.match(r"\s*(\||#|!\[|<|```|  !)", block)
        if plain:
            indent = "  " if block.startswith(("- ", "  ")) else ""
            lead = "  " if block.startswith("  ") else ""
            body = textwrap.fill(" ".join(block.split()), WIDTH, initial_indent=lead, subsequent_indent=indent,
                                 break_long_words=False, break_on_hyphens=False)  # fmt: skip
            out.append(body + ("\n" if block.endswith("\n") else ""))
        else:
            out.append(block)
    return "".join(out)


def rendered(folder: Path = RESULTS) -> dict[Path, str]:
    """Every file that is rendered, with its text."""
    from expressions import Namespace

    space = Namespace(folder)
    names = space.named()
    pages = {}
    for template in sorted(TEMPLATES.glob("*.md")):
        text = wrapped(filled(template.read_text(), names)).rstrip() + "\n"
        if template.stem in PARTS:
            page, name = ROOT / PARTS[template.stem][0], PARTS[template.stem][1]
            begin, whole = BEGIN.format(name), pages.get(page) or page.read_text()
            start, end = whole.index(begin) + len(begin), whole.index(END.format(name))
            pages[page] = f"{whole[:start]}\n{text}{whole[end:]}"
        else:
            pages[RESULTS / template.name] = text
    pages[RESULTS / "tables.md"] = space.tables().rstrip() + "\n"
    findings = {
        method: [
            {key: " ".join(filled(entry[key], names).split()) for key in ("sentence", "where")} for entry in entries
        ]
        for method, entries in tomllib.loads((TEMPLATES / "findings.toml").read_text()).items()
    }
    shipped = json.dumps(findings, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    pages[ROOT / "src" / "undrift" / "methods" / "findings.json"] = shipped
    pages[ROOT / "src" / "undrift" / "papers" / "minutes.json"] = json.dumps(space.minutes(), indent=1) + "\n"
    return pages


def main(arguments: Sequence[str]) -> int:
    pages = rendered()
    other = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in other:
            print(f"{path.relative_to(ROOT)} is not what the result files give; run docs/results/run tables")
        return 1 if other else 0
    for path in other:
        path.write_text(pages[path])
        print(f"wrote {path.relative_to(ROOT)}")
    if "--pages" in arguments:
        from claims_page import ClaimsPage
        from expressions import presets

        from undrift.papers.pages import write_results_page

        ClaimsPage(RESULTS).write(RESULTS / "claims.html")
        for name in presets(RESULTS):
            write_results_page(RESULTS / f"{name}.jsonl", RESULTS / f"{name}.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
