"""A run that has happened: its numbers, its pictures, its models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from undrift.aggregate import World
from undrift.bits import deterministic
from undrift.errors import BadRequest
from undrift.local import Round
from undrift.orders import Order
from undrift.setup import Setup
from undrift.store.vault import Vault
from undrift.study import summary

if TYPE_CHECKING:
    from undrift.study.traces import Traces


class Result:
    """What `ud.run` returns and `ud.load` finds again."""

    def __init__(self, setup: Setup, vault: Vault, world: World) -> None:
        self.setup, self.world, self.folder = setup, world, vault.folder
        self._vault = vault
        self.summary: dict[str, Any] = summary.summary(
            vault.record, None if vault.folder is None else str(vault.folder), setup.method.name, world.judged,
            setup.options.thresholds,
        )  # fmt: skip

    @property
    def accuracy(self) -> float | None:
        return self.summary["accuracy"]

    @property
    def vector(self) -> torch.Tensor:
        """The judged vector."""
        return self.world.judged

    @property
    def model(self) -> nn.Module:
        """The judged model as a plain module."""
        if self.setup.plan.private is not None:
            raise BadRequest("with private entries no global model exists; take a client's own with .personal(client)")
        return self.module_of(self.world.judged)

    def personal(self, client: int) -> nn.Module:
        """What a client holds after receiving the final model (stage L1), as a module."""
        if not 0 <= client < self.setup.plan.clients:
            raise BadRequest(f"there is no client {client}; they are numbered 0 to {self.setup.plan.clients - 1}")
        if self.setup.options.engine == "flower":
            raise BadRequest(
                "personal models of a deployment are at the sites: `ud.load(FOLDER)` there opens a site's own"
            )
        mixture = self.held(client)
        modules = [self.module_of(vector) for _, vector in mixture]
        return modules[0] if len(modules) == 1 else Mixture(modules, [float(weight) for weight, _ in mixture])

    def held(self, client: int) -> list[tuple[Any, torch.Tensor]]:
        """The mixture [(weight, vector)] behind `personal`."""
        from undrift.loop import Loop

        world, site = self.world, self.setup.site
        desk = Loop.desktop(self._window(), world)
        version = world.versions.get(("state", client))
        state = None if version is None else self._vault.states.get("state", client, version)
        order = Order("hold", world.round, client, world.judged, world.integers,
                      desk.told(desk.broadcasts(), client), version, state=state)  # fmt: skip
        with deterministic(0):
            work = Round(site, order)
            work.prepare()
            return [(weight, vector.cpu().clone()) for weight, vector in work.mixture(work.start)]

    def _window(self) -> Any:
        from undrift.engine.inline import Inline
        from undrift.loop import Loop

        return Loop(self.setup, Inline(self.setup.site, self._vault.states), self._vault)

    def module_of(self, vector: torch.Tensor) -> nn.Module:
        flat = self.setup.site.model.twin()
        flat.load(vector, self.world.integers)
        flat.module.eval()
        return copy.deepcopy(flat.module)

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Rows of the record: `result.rows("SELECT round, value FROM metrics WHERE stage='G'")`."""
        if self._vault.folder is None:
            return self._vault.record.all(query, values)
        return rows_of(self._vault.folder, query, values)

    def table(self) -> str:
        """The final stages as text; which model on which data stands in the header."""
        from undrift.study.tables import stage_table, text_table

        return text_table(stage_table([self.summary]))

    def plot(self, metric: str = "accuracy") -> Any:
        """A plotly figure of a metric over the rounds, per stage; bands are one std over clients."""
        from undrift.study.clients import bands

        return bands(self.rows, metric)

    def curve(self, stage: str = "G", data: str = "global", metric: str = "accuracy") -> Any:
        """A metric over the rounds, per client where there are clients: what the views of `undrift.evaluate.views` take."""
        from undrift.evaluate.views import curve

        return curve(self.rows, stage, data, metric)

    def traces(self) -> Traces:
        """What the parts saw (their notes) as sparklines and figures: `print(result.traces())`, `.write("page.html")`."""
        from undrift.study.traces import traces

        return traces(self.rows, self.setup.federation)

    def __repr__(self) -> str:
        accuracy = "—" if self.accuracy is None else f"{self.accuracy:.4f}"
        return f"<run of {self.setup.method.name}: {self.summary['rounds']} rounds, accuracy {accuracy} (stage G)>"


class Mixture(nn.Module):
    """Σ weight · logits of several models."""

    def __init__(self, modules: list[nn.Module], weights: list[float]) -> None:
        super().__init__()
        self.members, self.weights = nn.ModuleList(modules), weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = [member(x) for member in self.members]
        logits = [out if isinstance(out, torch.Tensor) else out.logits for out in outputs]
        return torch.stack([weight * z for weight, z in zip(self.weights, logits)]).sum(0)


def rows_of(folder: Path, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Rows of a run's record, read-only, also while the run goes on."""
    import sqlite3

    path = folder / "run.sqlite"
    if not path.exists():
        raise BadRequest(f"{folder} is not a run: it has no run.sqlite")
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return db.execute(query, values).fetchall()
    except sqlite3.DatabaseError as error:
        raise BadRequest(f"the record in {path} cannot be read: {error}") from None
    finally:
        db.close()


def named(run: str | Path) -> Path:
    """The folder that somebody means: by its path, by its name in `runs`, or by a file of a run in it."""
    folder = Path(run)
    if folder.name in ("run.toml", "run.sqlite"):
        folder = folder.parent
    return Path("runs") / folder if not folder.exists() and (Path("runs") / folder).is_dir() else folder
