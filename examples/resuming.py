"""Resuming: kill a run at any moment and resume it.

The script starts a run in a separate process, kills it (kill -9) after its first checkpoints and resumes it. Then it runs
the same settings without a kill and prints the hash of both final models: they are equal.

    python examples/resuming.py [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import undrift as ud

SETTINGS = {"method": "scaffold", "clients": 8, "model": "mlp(16)", "rounds": 30, "engine": "inline"}
START = "import sys, undrift as ud; ud.run(**eval(sys.argv[1]), out=sys.argv[2], checkpoint_every=1)"


def checkpoints(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "checkpoints").glob("*.safetensors"))


def main(folder: Path) -> None:
    disturbed = folder / "disturbed"
    process = subprocess.Popen([sys.executable, "-c", START, repr(SETTINGS), str(disturbed)])
    while process.poll() is None and "00000003.safetensors" not in checkpoints(disturbed):
        time.sleep(0.002)
    process.kill()
    process.wait()
    print(f"killed with {len(checkpoints(disturbed))} checkpoints: {', '.join(checkpoints(disturbed))}")

    resumed = ud.resume(disturbed)  # on the command line: undrift resume FOLDER
    ((detail,),) = resumed.rows("SELECT detail FROM events WHERE kind = 'resumed'")
    print(f"resumed {detail}")

    undisturbed = ud.run(**SETTINGS, out=folder / "undisturbed")
    for name, result in (("resumed", resumed), ("undisturbed", undisturbed)):
        print(f"{name:11} {result.summary['rounds']} rounds, model {result.summary['model_sha256'][:16]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
