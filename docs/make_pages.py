"""Write the pages of the site that are not files of docs/: one per method, the examples, CONTRIBUTING and CHANGELOG.

`make docs` writes them to docs/generated before Sphinx starts. Their content comes from `undrift methods --json` and from
files of the repository, so nothing is typed twice.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGES = DOCS / "generated"
# Files that become pages under another address.
MOVED = {
    ROOT / "README.md": "/index.md",
    ROOT / "CONTRIBUTING.md": "/generated/contributing.md",
    ROOT / "CHANGELOG.md": "/generated/changelog.md",
    ROOT / "examples" / "README.md": "/generated/examples.md",
    DOCS / "changelog.md": "/generated/changelog.md",
}
PERSONAL = {
    None: "Clients have no personal models.",
    True: "The server can rebuild a client's personal model: it is what the client sends.",
    False: "The server cannot rebuild a client's personal model: a part of it never leaves the client.",
}


def write() -> list[str]:
    """Write all pages and return the names of the methods."""
    shutil.rmtree(PAGES, ignore_errors=True)
    (PAGES / "methods").mkdir(parents=True)
    described = methods()
    for method in described:
        (PAGES / "methods" / f"{method['name']}.md").write_text(method_page(method))
    (PAGES / "contributing.md").write_text(relinked((ROOT / "CONTRIBUTING.md").read_text(), ROOT))
    (PAGES / "changelog.md").write_text(relinked((ROOT / "CHANGELOG.md").read_text(), ROOT))
    (PAGES / "examples.md").write_text(examples_page())
    return [method["name"] for method in described]


def methods() -> list[dict[str, Any]]:
    """What `undrift methods --json` prints."""
    from undrift.cli import command

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        command(["methods", "--json"])
    return json.loads(printed.getvalue())


def method_page(method: dict[str, Any]) -> str:
    name, costs = method["name"], method["costs"]
    call = f"{name}({', '.join(f'{k}={v}' for k, v in list(method['parameters'].items())[:1])})"
    call = call.removesuffix("()") if "none" not in call else name
    blocks = [
        f"# {name}",
        method["what"],
        f"*{method['paper']}.* Parts: {listed(method['parts']) or 'none beyond plain averaging'}."
        + (f" It uses {listed(method['prefers'])} if you name nothing else." if method["prefers"] else ""),
        f'```sh\nundrift run --method "{call}"\n```',
        f'```python\nimport undrift as ud\n\nresult = ud.run("{call}", rounds=20)\n```',
    ]
    blocks += [
        "## What it computes",
        *map(about, method["about"] or ["The mean of the clients' models, weighted by size."]),
    ]
    blocks.append("## Parameters")
    if method["parameters"]:
        rows = [[f"`{k}`", f"`{v}`", method["allowed"].get(k, "")] for k, v in method["parameters"].items()]
        blocks.append(table(["name", "default", "allowed"], rows))
    else:
        blocks.append("None.")
    blocks += [
        "## What leaves a site",
        "\n".join(
            [
                "- The model after local training, without the entries that stay private.",
                *(f"- `{text.partition(': ')[0]}`: {text.partition(': ')[2]}" for text in method["sends"]),
                "- The number of samples and steps, and the mean training loss.",
            ]
        ),
        "Beside the model a site receives "
        + ("; ".join(method["receives"]) or "nothing")
        + ". "
        + PERSONAL[costs["rebuilt"]],
        "## What it costs",
        "Per client and round, counted on a tiny federation while the method's schedule is active "
        "([all methods](/methods.md), [in seconds](/results/costs.md)).",
        table(["", "counted"], cost_rows(method)),
        "## Evidence",
        "Laws that are tested: " + ", ".join(f"`tests/laws/{file}.py`" for file in method["laws"]) + ".",
    ]
    findings = [f"- {finding['sentence']} ({finding['where']})" for finding in method["findings"]]
    findings = [re.sub(r"docs/(results/\S+?\.md)", r"[\1](/\1)", line) for line in findings]
    blocks.append("Controls:\n\n" + "\n".join(findings) if findings else "Controls have not been measured yet.")
    return "\n\n".join(blocks) + "\n"


def cost_rows(method: dict[str, Any]) -> list[list[str]]:
    costs = method["costs"]
    per_epoch = f" + {costs['passes_per_epoch']:g} per epoch" if costs["passes_per_epoch"] else ""
    rows = [
        ["passes over the client's data beyond training", f"{costs['passes']:g}{per_epoch}"],
        ["samples trained on, relative to FedAvg", f"{costs['training']:.2f}"],
        ["bytes up: model + the rest", f"{costs['model']:,}\u00a0+\u00a0{costs['up']:,}"],
        ["bytes down: model + the rest", f"{costs['model']:,}\u00a0+\u00a0{costs['down']:,}"],
        ["bytes of state that the client keeps", f"{costs['state']:,}"],
        ["bytes that the server keeps per client", f"{costs['shelf']:,}"],
    ]
    return [*rows, ["data at the server", "a proxy set"]] if method["needs_proxy"] else rows


def about(text: str) -> str:
    """A part's docstring with its first line as a heading."""
    first, _, rest = text.partition("\n")
    return f"### {first.rstrip('.')}\n\n{rest.strip(chr(10))}".rstrip()


def examples_page() -> str:
    listing = re.sub(r"\]\((\w+)\.py\)", r"](#\1)", (ROOT / "examples" / "README.md").read_text())
    blocks = [relinked(listing, ROOT / "examples")]
    for file in sorted((ROOT / "examples").glob("*.py")):
        source = file.read_text()
        title = (ast.get_docstring(ast.parse(source)) or file.stem).splitlines()[0].rstrip(".")
        blocks.append(f"({file.stem})=\n## {title}\n\n`examples/{file.name}`\n\n```python\n{source}```")
    return "\n\n".join(blocks) + "\n"


def relinked(text: str, folder: Path) -> str:
    """Turn links that are relative to `folder` into links of the site."""

    def on_site(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        file = (folder / target).resolve()
        if not target or ":" in target or target.startswith("/") or not file.exists():
            return match[0]
        if file in MOVED:
            address = MOVED[file]
        elif file.is_relative_to(DOCS):
            address = f"/{file.relative_to(DOCS)}"
        else:
            address = f"/../{file.relative_to(ROOT)}"
        return f"]({address}{'#' if anchor else ''}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", on_site, text)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(f"wrote {len(write())} pages of methods to {PAGES.relative_to(ROOT)}")
