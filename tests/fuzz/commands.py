"""Generated command lines."""

from __future__ import annotations

import random

from tests.fuzz.values import NAMES, STRANGE, call, mangled
from undrift.experiment.options import FIELDS, HINTS

SMALL = {"--clients": "4", "--rounds": "1", "--epochs": "1", "--model": "logistic", "--engine": "inline"}
# Valid values that take long or leave this process: their runs are no faults, but no test either.
LONG_RUNS = {"--engine": ("ray", "processes", "flower"), "--rounds": (), "--epochs": ()}
BOUNDED = {"--rounds", "--epochs", "--clients"}  # a large value is a long run, or a large one
COMMANDS = ("run", "compare", "data show", "show", "resume", "report", "export", "runs", "methods", "paper show", "paper run",
            "paper results", "deploy init", "deploy check", "deploy status", "bench", "demo", "env", "data list", "")  # fmt: skip
WEIGHTS = (50, 10, 9, 3, 3, 3, 2, 2, 3, 2, 2, 2, 3, 2, 1, 1, 1, 0.3, 0.3, 0.4)


def command_line(draw: random.Random) -> list[str]:
    """One command line. Most have one or two strange values."""
    name = draw.choices(COMMANDS, WEIGHTS)[0]
    words = name.split()
    if name in ("run", "compare"):
        words += run_like(draw, name)
    elif name == "data show":
        words += [call(draw, "partition") if draw.random() < 0.5 else strange(draw) for _ in range(1)]
        words = [*words[:2], draw.choice(("digits", "digits", strange(draw))), *words[2:]]
        words += [*options(draw, ("--clients", "--noise", "--domains", "--seed")), *draw.choice(((), ("--json",)))]
    elif name in ("show", "resume", "report", "export", "deploy status", "paper results"):
        more = draw.choice(((), ("--json",), ("--traces",), ("--rounds", strange(draw))))
        words += [draw.choice(("runs", "nowhere", strange(draw))), *more]
    elif name == "runs":
        words += draw.choice(((), (strange(draw),), ("--remove", strange(draw)), ("--json",)))
    elif name == "methods":
        words += [draw.choice((strange(draw), call(draw, "method")))]
    elif name in ("paper show", "paper run"):
        words += [
            draw.choice((strange(draw), "flood/table5")),
            draw.choice(("--scale", "--rounds", "--seeds", "--row", "--seed")),
            "-1",
        ]
    elif name == "deploy init":
        words += [
            "app",
            "--sites",
            draw.choice(("a,b", strange(draw))),
            "--labels",
            draw.choice(("x,y", strange(draw))),
        ]
        words += [
            "--shape",
            draw.choice(("4", strange(draw))),
            draw.choice(("--quorum", "--deadline", "--norm", "--relative-norm", "--address", "--superlink")),
            strange(draw),
        ]
    elif name == "deploy check":
        words += [draw.choice((".", strange(draw))), draw.choice(("--port", "--site", "--data")), strange(draw)]
    elif name == "bench":
        words += [draw.choice(("--seconds", "--workers")), draw.choice(("nan", "-1", "0", "inf", "x", ""))]
    elif name == "demo":
        words += ["--rounds", draw.choice(("0", "-1", "x", "²", "", "nan"))]
    if draw.random() < 0.04:
        words.append(draw.choice(("--json", "--nothing", "--quiet", "--out", "-x", "--help")))
    return [word for word in words if "\0" not in word]


def run_like(draw: random.Random, name: str) -> list[str]:
    words = []
    if name == "compare":
        words = [
            draw.choice((call(draw, "method"), strange(draw), "fedavg", f"fedavg --lr {strange(draw)}"))
            for _ in range(draw.randint(0, 2))
        ]
        if draw.random() < 0.3:
            words += [draw.choice(("--seeds", "--repeat", "--grid", "--resume", "--rank-by")), strange(draw)]
    given = options(draw, [flag for flag in map(flag_of, FIELDS) if (name, flag) != ("compare", "--method")])
    for flag, value in SMALL.items():
        if flag not in given:
            given += [flag, value]
    return words + given + (["--quiet"] if draw.random() < 0.5 else [])


def options(draw: random.Random, known: list[str] | tuple[str, ...]) -> list[str]:
    """One to three options, each with a value that its kind of option may have, mangled or not, or a strange one."""
    words: list[str] = []
    for flag in draw.sample(list(known), draw.randint(1, min(3, len(known)))):
        name = flag.removeprefix("--").replace("-", "_")
        if HINTS.get(name) is bool:
            words.append(flag)
            continue
        value = strange(draw)
        if name in NAMES and draw.random() < 0.7:
            value = call(draw, name)
            if draw.random() < 0.3:
                value += draw.choice("+@") + call(draw, name)
            if draw.random() < 0.2:
                value = mangled(draw, value)
        if value in LONG_RUNS.get(flag, ()):
            value = "inline"
        if flag in BOUNDED and len(value) < 20 and value.strip().lstrip("+").isdecimal():
            value = str(int(value) % 7)
        words += [flag, value]
    return words


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def strange(draw: random.Random) -> str:
    return draw.choice(STRANGE)
