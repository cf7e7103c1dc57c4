"""The codes of errors at a site. A code leaves the site, and the server turns it into a sentence. The error's own text
stays in the site's log: it may quote data."""

from __future__ import annotations

REFUSALS = {
    "config": "its node configuration is not complete",
    "data": "its data.py cannot be used",
    "labels": "its labels differ from the deployment's",
    "shape": "its samples have another shape than the model takes",
    "version": "it has another version of undrift",
    "method": "it has another method",
    "layout": "its model has another layout",
    "base": "its frozen parameters are not the deployment's",
    "folder": "its folder cannot be written",
    "policy": "its policy does not agree",
    "states": "it keeps its states, which the order would delete or overwrite",
    "order": "it cannot read the message",
    "error": "an error occurred there",
}
FAILURES = {
    "exception": "its training raised an error",
    "nonfinite": "its training was not finite",
    "malformed": "a part made a message that is not as declared",
    "empty": "it could not make a single step",
    "lost": "its state cannot be read, or is damaged; restore its folder",
}


def refusal_sentence(code: str) -> str:
    return f"{REFUSALS.get(code, REFUSALS['error'])}; see the site's log"


def failure_sentence(code: str) -> str:
    return f"{FAILURES[code]}; see the site's log"
