"""Options that make a federation have no effect on one that is given: refuse them, unless they say what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undrift.core.errors import BadRequest
from undrift.federation.dealing import as_texts
from undrift.federation.federation import Federation

FEDERATION_OPTIONS = (
    "data", "target", "client_column", "partition", "clients", "noise", "domains", "validation", "proxy", "unseen",
    "data_seed", "standardise",
)  # fmt: skip


def with_given(keywords: Mapping[str, Any], federation: Federation | None) -> dict[str, Any]:
    """The keywords for a run on this federation, with its share of validation data. Keywords that ask for another
    federation are refused: they would be ignored, and run.toml would record them."""
    if federation is None:
        return dict(keywords)
    texts = as_texts(*(keywords.get(name) for name in ("data", "partition", "clients", "noise", "domains")))
    facts = {"clients": len(federation.shards), "validation": federation.validation, "data_seed": federation.seed}
    facts |= {} if len(federation.proxy_rows) else {"proxy": 0}
    facts |= {} if federation.unseen else {"unseen": 0}
    facts |= federation.spec or {}
    for name in FEDERATION_OPTIONS:
        value = texts.get(name, keywords.get(name))
        if value is not None and (name not in facts or type(value) is bool or facts[name] != value):
            raise BadRequest(
                f"{name}={value!r} has no effect on a federation that is given; make the federation with it: "
                f"ud.federate(…, {'seed' if name == 'data_seed' else name}=…)"
            )
    return {**keywords, **({"validation": federation.validation} if federation.validation else {})}
