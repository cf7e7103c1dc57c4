"""Deploying: from a method that works in a simulation to an app for real sites.

The script writes the app of a deployment for two sites (what `undrift deploy init` does), gives each site its data, and
asks one site what a round would cost and what would leave it (what `undrift deploy check` does). Nothing is sent and no
Flower is started: docs/deploy.md has the rest of the way.

    python examples/deploying.py [FOLDER]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

import undrift as ud
from undrift.deploy import check
from undrift.deploy.init import init

SITES = ["berlin", "oslo"]
OPTIONS = {"method": "scaffold", "data": "digits", "model": "mlp(16)", "rounds": 2}  # those of `undrift run`


def main(folder: Path) -> None:
    app = folder / "clinics"
    init(app, OPTIONS, {"sites": SITES})
    print("the app:", ", ".join(sorted(str(f.relative_to(app)) for f in app.rglob("*") if f.is_file())))

    # At a real site data.py reads what lies there. Here each site gets a slice of the digits.
    federation = ud.federate("digits", "dirichlet(0.3)", clients=len(SITES), seed=0)
    for number, site in enumerate(SITES):
        x, y = federation.train(number)
        (folder / site).mkdir()
        np.savez(folder / site / "data.npz", x=x[..., 0], y=y)
        shutil.copy(app / "site" / "data.py", folder / site)

    found = check.site(app, "berlin", folder / "berlin" / "data.py")
    for name in ("site", "samples", "model", "leaves", "ready"):
        print(f"{name}: {found[name]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            main(Path(place))
