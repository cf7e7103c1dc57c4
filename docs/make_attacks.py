"""Write docs/attacks.md from the kept runs in docs/results/who-survives-fashion-mnist.jsonl.

python docs/make_attacks.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean

HERE = Path(__file__).parent
KEPT = HERE / "results" / "who-survives-fashion-mnist.jsonl"
# What is done, by the name in the kept runs: what it is, and how to try it.
ATTACKS = {
    "flip": ("updates with the sign reversed", '--faults "flip(0.2, unit=client)"'),
    "scale": ("updates ten times as long", '--faults "scale(0.2, unit=client)"'),
    "nan": ("answers that are not finite", '--faults "nan(0.2, unit=client)"'),
    "pair": ("labels renamed to the next class", '--noise "pair(0.2, unit=client)"'),
    "constant": ("all labels the same class", '--noise "constant(0.2, 0, unit=client)"'),
    "symmetric": ("labels drawn at random", '--noise "symmetric(0.2, unit=client)"'),
}
ROBUST = ("median", "trimmed", "krum", "geomedian", "normbound")
SHARES = (0.2, 0.4)
POINTS = 1.0  # of accuracy, in each seed, before a rule is said to help


def seeds_of(rows: list[dict]) -> dict[tuple[str, float, str], dict[int, float]]:
    """Accuracy in percent by seed, of every (attack, share, rule)."""
    found: dict[tuple[str, float, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        found[row["trouble"], row["share"], row["rule"]][row["seed"]] = 100 * row["accuracy"]
    return found


def ahead(found: dict, attack: str, share: float, rule: str) -> bool:
    """Whether a rule is ahead of size weights by a point in every seed."""
    plain, own = found[attack, share, "fedavg"], found[attack, share, rule]
    return all(own[seed] - plain[seed] >= POINTS for seed in plain)


def table(found: dict) -> str:
    lines = ["| clients send | share | size weights | what helps (ahead in every seed) | best robust rule |"]
    lines.append("|---|---:|---:|---|---:|")
    for attack, (what, _) in ATTACKS.items():
        for share in SHARES:
            numbers = {rule: mean(found[attack, share, rule].values()) for rule in ("fedavg", *ROBUST)}
            helps = [f"`{rule}` {numbers[rule]:.1f}" for rule in ROBUST if ahead(found, attack, share, rule)]
            best = max(ROBUST, key=lambda rule: numbers[rule])
            plain = f"{numbers['fedavg']:.1f}"
            shown = ", ".join(helps) or "none"
            lines.append(f"| {what} | {share:.0%} | {plain} | {shown} | `{best}` {numbers[best]:.1f} |")
    return "\n".join(lines)


def document() -> str:
    rows = [json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines()]
    found = seeds_of(rows)
    clean, seeds = mean(found["none", 0.0, "fedavg"].values()), len(found["none", 0.0, "fedavg"])
    commands = "\n".join(f"| {what} | `{command}` |" for what, command in ATTACKS.values())
    return TEXT.format(table=table(found), clean=f"{clean:.1f}", seeds=seeds, commands=commands)


TEXT = """# Attacks, and what helps

A client can send what it likes: a wrong update by accident, or one that is meant to harm. This page says what Undrift does
about it, and what the kept runs show. `python docs/make_attacks.py` writes it from
[who-survives-fashion-mnist.jsonl](results/who-survives-fashion-mnist.jsonl); [who survives what](results/who-survives.md)
has all rules, all kinds of trouble, the settings, the machine and the date.

## What always holds

- An answer that is not finite, malformed, late or missing is left out before anything is averaged, under every rule, and
  the record says so (table `events`). The round goes on with the other clients.
- In a deployment, a site's message is checked against what its method declares: names, sizes and ranges. A site that
  breaks them is left out of the round ([from a simulation to real sites](deploy.md)).
- Nothing checks whether a finite, well-formed update is *true*. That is what robust rules are for.

## What robust rules do

Accuracy (stage G, %) on Fashion-MNIST, mean of {seeds} seeds. Without an attack size weights have {clean}.

{table}

- Robust rules help against updates that are **far away**: long ones, and reversed ones when there are many.
- Where two fifths of the clients call everything **the same class**, no rule holds: they agree with each other, so they are
  the densest group.
- Wrong labels at random cancel out in the average, and a robust rule has nothing to add.
- Remedies for skew (bound weighting, FedNolowe, FLOOD) are not robust rules.

## Try it

| clients send | option |
|---|---|
{commands}

`unit=client` breaks the same clients in every round; without it each client is drawn anew in each round. A robust rule is a
method of its own, or the combining part of another: `--method geomedian`, `--method scaffold --combine median`.
`undrift compare fedavg median geomedian normbound --faults "scale(0.2, unit=client)"` compares them.

## What this page does not cover

Backdoors, attacks that know the rule, and what somebody can infer from the messages of a client. What a method's messages
contain is listed by `undrift methods NAME`, and a deployment logs everything that leaves a site.
"""

if __name__ == "__main__":
    (HERE / "attacks.md").write_text(document(), encoding="utf-8")
    print(f"wrote attacks.md: {len(document().splitlines())} lines")
