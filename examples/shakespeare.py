"""Text: the next character, with Shakespeare's roles as clients.

A hundred roles train LEAF's LSTM, by FedAvg and by FedProx. The script prints the share of characters of the roles' last lines
that each predicts, beside that of a table of character pairs (a bigram table) counted on the same training text, and lets
both write. It needs shakespeare_roles.json in the folder UNDRIFT_DATA, and about five minutes on one core.

    python examples/shakespeare.py [FOLDER [ROUNDS]]
"""

from __future__ import annotations

import html
import sys
from pathlib import Path

import torch

import undrift as ud

METHODS = ["fedavg", "fedprox(mu=0.01)"]
OPTIONS = {"model": "lstm", "optimizer": "adam", "lr": 0.01, "batch": 4, "epochs": 1, "clip": 5.0, "cohort": 10}


def bigram_accuracy(federation: ud.Federation) -> float:
    """How often the character that most often follows another one in the training text is right."""
    tokens = federation.classes
    pairs = torch.bincount(federation.x.values * tokens + federation.y.values, minlength=tokens**2)
    guess = pairs.view(tokens, tokens).argmax(1)
    return (guess[federation.test_x.values] == federation.test_y.values).double().mean().item()


def written(model: torch.nn.Module, alphabet: tuple[str, ...], start: str, length: int = 240) -> str:
    """What a model writes after `start`, drawn from its predictions at temperature 0.6."""
    draw, tokens = torch.Generator().manual_seed(0), [alphabet.index(character) for character in start]
    with torch.no_grad():
        for _ in range(length):
            logits = model(torch.tensor([tokens[-80:]]))[0, -1] / 0.6
            tokens.append(int(torch.multinomial(logits.softmax(0), 1, generator=draw)))
    return "".join(alphabet[token] for token in tokens)


def main(folder: Path, rounds: int) -> None:
    federation = ud.federate("shakespeare(roles=100, pieces=20)", seed=0)
    clients, size = federation.clients, len(federation.y.values)
    print(f"{clients} roles, {size:,} characters to train on, {federation.classes} different")
    print(f"bigram table: token accuracy {bigram_accuracy(federation):.1%}")
    sections = []
    for method in METHODS:
        result = ud.run(method, federation, rounds=rounds, evaluate_every=rounds, out=False, seed=0, **OPTIONS)
        accuracy, cohort = result.headline, OPTIONS["cohort"]
        print(f"{method}: token accuracy {accuracy:.1%} after {rounds} rounds with {cohort} roles each")
        text = written(result.model, federation.labels, "My lord, ")
        sections.append(f"<h2>{method}</h2><pre>{html.escape(text)}</pre>")
    page = folder / "shakespeare.html"
    page.write_text(f"<!doctype html><meta charset='utf-8'><title>Models write</title>{''.join(sections)}", "utf-8")
    print(f"wrote {page.name}\n\n{text}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), int(sys.argv[2]) if len(sys.argv) > 2 else 30)
