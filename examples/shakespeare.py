"""Text: the next character, with Shakespeare's roles as clients.

A hundred roles train LEAF's LSTM, by FedAvg and by FedProx. A tenth of their training text chooses the rates. The script prints
how many characters of the roles' last lines each predicts, beside a table of character pairs (bigrams) counted on the same
text, and lets both write. It needs shakespeare_roles.json in the folder UNDRIFT_DATA, and ten minutes on two cores.

    python examples/shakespeare.py [FOLDER [ROUNDS]]
"""

from __future__ import annotations

import html
import sys
import tempfile
from pathlib import Path

import torch

import undrift as ud

METHODS = ["fedavg", "fedprox(mu=0.001)"]  # the μ that FedProx's authors use for these plays
OPTIONS = dict(model="lstm", optimizer="adam", batch=4, epochs=1, clip=5.0, cohort=10, evaluate_on="own")


def bigram_accuracy(federation: ud.Federation) -> float:
    """How often the character that most often follows another one in the training text is right."""
    tokens, pairs = federation.classes, torch.zeros(federation.classes**2, dtype=torch.long)
    for x, y in map(federation.train, range(federation.clients)):
        pairs += torch.bincount(x.values * tokens + y.values, minlength=tokens**2)
    guess = pairs.view(tokens, tokens).argmax(1)
    return (guess[federation.test_x.values] == federation.test_y.values).double().mean().item()


def written(model: torch.nn.Module, alphabet: tuple[str, ...]) -> str:
    """What a model writes after "My lord, ", drawn from its predictions at temperature 0.6."""
    draw, tokens = torch.Generator().manual_seed(0), [alphabet.index(character) for character in "My lord, "]
    with torch.no_grad():
        for _ in range(240):
            logits = model(torch.tensor([tokens[-80:]]))[0, -1] / 0.6
            tokens.append(int(torch.multinomial(logits.softmax(0), 1, generator=draw)))
    return "".join(alphabet[token] for token in tokens)


def main(folder: Path, rounds: int) -> None:
    federation = ud.federate("shakespeare(roles=100, pieces=20)", validation=0.1, seed=0)
    print(f"{federation.clients} roles, {federation.classes} different characters")
    print(f"bigram table: token accuracy {bigram_accuracy(federation):.1%}")
    options, sections = {**OPTIONS, "rounds": rounds, "evaluate_every": rounds, "grid": {"lr": [0.003, 0.01, 0.03]}}, []
    with tempfile.TemporaryDirectory() as runs:
        for row in ud.compare(METHODS, federation, out=Path(runs) / "runs", **options).rows:
            print(f"{row['method']}: token accuracy {row['headline']['value']:.1%} after {rounds} rounds of 10 roles")
            text = written(ud.load(row["run"], federation=federation).model, federation.labels)
            sections.append(f"<h2>{row['method']}</h2><pre>{html.escape(text)}</pre>")
    page = f"<!doctype html><meta charset='utf-8'><title>Models write</title>{''.join(sections)}"
    (folder / "shakespeare.html").write_text(page, "utf-8")
    print(f"wrote shakespeare.html\n\n{text}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), int(sys.argv[2]) if len(sys.argv) > 2 else 30)
