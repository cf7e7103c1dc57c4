"""Deploying: from a method that works in a simulation to an app for real sites.

The script writes the app for two sites (as `undrift deploy init` does), gives each site its data, and checks one site (as
`undrift deploy check` does): what a round would cost and what would leave the site. It sends nothing and does not start
Flower. docs/deploy.md has the remaining steps.

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

    # At a real site data.py reads the site's own files. Here each site gets a slice of the digits.
    federation = ud.federate("digits", "dirichlet(0.3)", clients=len(SITES), seed=0)
    for number, site in enumerate(SITES):
        x, y = federation.train(number)
        (folder / site).mkdir()
        np.savez(folder / site / "data.npz", x=x[..., 0], y=y)
        shutil.copy(app / "site" / "data.py", folder / site)

    report = check.site(app, "berlin", folder / "berlin" / "data.py")
    for name in ("site", "samples", "model", "leaves", "ready"):
        print(f"{name}: {report[name]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
