"""Shakespeare's plays by role: every role is a client, and predicts the next character of its lines.

    text of a role = its speeches, one after the other;   x = characters t … t+L−1,   y = characters t+1 … t+L

Pieces do not overlap. A role's last piece may be shorter, so pieces are sequences of unequal length. The last fifth of a
role's pieces is its test part (LEAF splits in time too). Roles with one speech are left out, as in LEAF.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from undrift.core.errors import BadRequest
from undrift.core.samples import Ragged
from undrift.data.cache import Arrays, cached
from undrift.data.dataset import DataSet
from undrift.data.options import at_least
from undrift.data.readers import content

TEST_SHARE = 0.2
PAD = -1


def shakespeare(
    paths: list[Path], roles: int | None = None, pieces: int | None = None, length: int = 80
) -> tuple[Arrays, str]:
    """All roles, or the `roles` with the longest texts, of each at most the first `pieces` pieces of `length`
    characters. All texts as one row of characters, with offsets, and what was left out."""
    for name, value in (("roles", roles), ("pieces", pieces)):
        if value is not None:
            at_least("shakespeare", name, value, 1)
    at_least("shakespeare", "length", length, 2)
    whole = cached("shakespeare", paths, partial(all_texts, paths[0]))
    chosen = longest(whole["offsets"], roles)
    arrays = cut(whole, chosen, pieces, length)
    return arrays, f"{len(chosen)} of {len(whole['offsets']) - 1} roles" if roles is not None else ""


def all_texts(path: Path) -> Arrays:
    """The texts of all roles with two speeches or more: characters as numbers, where each role begins, the names of the
    characters and of the roles."""
    texts = read_roles(path)
    alphabet = sorted({character for text in texts.values() for character in text})
    number = {character: place for place, character in enumerate(alphabet)}
    lengths = [len(text) for text in texts.values()]
    return {
        "characters": np.array([number[c] for text in texts.values() for c in text], dtype=np.uint8),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        "alphabet": np.array(alphabet),
        "roles": np.array(list(texts)),
    }


def read_roles(path: Path) -> dict[str, str]:
    """{"PLAY: ROLE": text} from {play: {role: [speech, …]}}."""
    try:
        plays = json.loads(content(path))
        return {
            f"{play}: {role}": "\n".join(speeches)
            for play, roles in plays.items()
            for role, speeches in roles.items()
            if len(speeches) > 1
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise BadRequest(
            f"{path} is not a JSON of {{play: {{role: [speech, …]}}}}: {error}; fetch the file again"
        ) from None


def longest(offsets: np.ndarray, roles: int | None) -> np.ndarray:
    """The numbers of the roles with the longest texts, in the order of the file."""
    lengths = np.diff(offsets)
    if roles is not None and roles > len(lengths):
        raise BadRequest(f"shakespeare has {len(lengths)} roles, not {roles}; ask for at most {len(lengths)}")
    return np.sort(np.argsort(-lengths, kind="stable")[:roles])


def cut(whole: Arrays, chosen: np.ndarray, pieces: int | None, length: int) -> Arrays:
    """The pieces of the chosen roles: arrays of a data set, where x and y are `values` with `offsets`."""
    starts: dict[str, list[int]] = {"train": [], "test": []}
    stops: dict[str, list[int]] = {"train": [], "test": []}
    client: dict[str, list[int]] = {"train": [], "test": []}
    for number, role in enumerate(chosen.tolist()):
        first, last = (int(whole["offsets"][at]) for at in (role, role + 1))
        begins = list(range(first, last - 1, length))[:pieces]  # the last character is only ever predicted
        held = round(TEST_SHARE * len(begins)) if len(begins) > 1 else 0
        for place, begin in enumerate(begins):
            split = "test" if place >= len(begins) - held else "train"
            starts[split].append(begin)
            stops[split].append(min(begin + length, last - 1))
            client[split].append(number)
    arrays: Arrays = {"classes": whole["alphabet"], "clients": whole["roles"][chosen]}
    for split in starts:
        first_places = np.array(starts[split], dtype=np.int64)
        lengths = np.array(stops[split], dtype=np.int64) - first_places
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        places = np.repeat(first_places, lengths) + within
        arrays[f"x_{split}"], arrays[f"y_{split}"] = whole["characters"][places], whole["characters"][places + 1]
        arrays[f"offsets_{split}"], arrays[f"client_{split}"] = offsets, np.array(client[split], dtype=np.int64)
    return arrays


def as_data_set(arrays: Arrays, licence: str, source: str, note: str) -> DataSet:
    parts: dict[str, Any] = {
        f"{name}_{split}": Ragged(arrays[f"{name}_{split}"].astype(np.int64), PAD, arrays[f"offsets_{split}"])
        for name in "xy"
        for split in ("train", "test")
    }
    return DataSet(
        "shakespeare",
        **parts,
        classes=tuple(map(str, arrays["classes"].tolist())),
        mean=(),
        std=(),
        licence=licence,
        source=source,
        note=note,
        clients=tuple(map(str, arrays["clients"].tolist())),
        client_train=arrays["client_train"],
        client_test=arrays["client_test"],
        task="sequence",
    )
