"""The result of a run: its numbers, figures and models."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from undrift.core.determinism import deterministic
from undrift.core.errors import BadRequest, RunFailed
from undrift.engine.inline import Inline
from undrift.evaluate.orders import of_personal_models
from undrift.experiment import summary
from undrift.experiment.setup import Setup
from undrift.round.client import ClientRound
from undrift.store.record import rows_of
from undrift.store.run_store import RunStore
from undrift.store.server_state import ServerState

if TYPE_CHECKING:
    from undrift.report.traces import Traces


@dataclass(frozen=True)
class Unbuilt:
    """In the place of the setup of a run that names code which may not be imported, or whose data are not here."""

    method: str
    thresholds: Sequence[float]
    refusal: BadRequest


class Result:
    """The result of a run, returned by `ud.run`, `ud.resume` and `ud.load`.

    `summary` is the object that `undrift run --json` prints, `folder` is the run's folder (None with `out=False`).
    `rows` reads anything else from the record of the run (docs/formats.md has its tables).

        result = ud.run("scaffold", rounds=30)
        result.accuracy                     # of the global model on the test set
        print(result.table())               # all stages
        result.plot().show()                # accuracy over the rounds
        result.model, result.personal(3)    # torch modules: the global model, the model of client 3
    """

    def __init__(
        self, setup: Setup | Unbuilt, store: RunStore, server_state: ServerState, damage: Sequence[str] = ()
    ) -> None:
        self._setup, self.server_state, self.folder = setup, server_state, store.folder
        self._store = store
        self.damage = list(damage)  # one sentence for everything in the folder that is not as the run wrote it
        self.summary: dict[str, Any] = summary.summary(
            store.record,
            None if store.folder is None else str(store.folder),
            setup.method.name if isinstance(setup, Setup) else setup.method,
            server_state.evaluated,
            setup.options.thresholds if isinstance(setup, Setup) else setup.thresholds,
        )
        if damage:
            self.summary["damage"] = self.damage

    @property
    def setup(self) -> Setup:
        """What the run was made of: options, federation, method, plan."""
        if isinstance(self._setup, Unbuilt):
            raise self._setup.refusal
        return self._setup

    @property
    def accuracy(self) -> float | None:
        """Accuracy of the global model on the test set (stage G); None for a method with private entries, and for a task
        that has none (`headline` has what ranks it)."""
        return self.summary["accuracy"]

    @property
    def headline(self) -> float | None:
        """The number that ranks the run: accuracy, or that of its task (`summary["headline"]` has its name)."""
        value: float | None = self.summary["headline"]["value"]
        return value

    @property
    def vector(self) -> torch.Tensor:
        """The evaluated model as one flat vector."""
        return self.server_state.evaluated

    @property
    def model(self) -> nn.Module:
        """The evaluated global model as a torch module, in evaluation mode."""
        if self.setup.plan.private is not None:
            raise BadRequest(
                "a method with private entries has no global model; use .personal(client) for the model of one client"
            )
        return self.module_of(self.server_state.evaluated)

    def personal(self, client: int | str) -> nn.Module:
        """The model that a client holds after it received the final global model (stage L1), as a torch module."""
        client = self.setup.federation.client_number(client, self.setup.plan.clients)
        if self.setup.options.engine == "flower":
            raise BadRequest("the personal models of a deployment are at the sites; run `ud.load(FOLDER)` at the site")
        mixture = self.held(client)
        modules = [self.module_of(vector) for _, vector in mixture]
        return modules[0] if len(modules) == 1 else Mixture(modules, [float(weight) for weight, _ in mixture])

    def predict(self, x: Any, client: int | str | None = None) -> torch.Tensor:
        """The outputs of the global model, or of a client's model, on new samples: raw ones, as the data set holds them."""
        from undrift.experiment.predict import outputs_of

        return outputs_of(self, x, client)

    def client_of(self, text: str | None) -> int | str | None:
        """A client as it is typed: a name, or a number."""
        known = text is None or text in self.setup.federation.names
        return int(text) if not known and text is not None and text.isdecimal() else text

    def held(self, client: int) -> list[tuple[Any, torch.Tensor]]:
        """The mixture [(weight, vector)] that `personal` makes a module of."""
        if self._store.lost_states is not None:
            raise RunFailed(self._store.lost_states)
        engine = Inline(self.setup.runtime, self._store.states)
        server_round = self.setup.loop(engine, self._store).open_round(self.server_state)
        messages = {client: server_round.messages_for(server_round.broadcasts(), client)}
        (order,) = of_personal_models(self.server_state, messages, evaluate_on=())
        with deterministic(0):
            work = ClientRound(self.setup.runtime, engine.with_state(order))
            work.prepare()
            return [(weight, vector.cpu().clone()) for weight, vector in work.mixture(work.start)]

    def module_of(self, vector: torch.Tensor) -> nn.Module:  # a new module of the network, with the vector's values
        flat = self.setup.runtime.model.twin()
        flat.load(vector, self.server_state.integers)
        flat.module.eval()
        return copy.deepcopy(flat.module)

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Query the record with SQL: `result.rows("SELECT round, value FROM metrics WHERE stage='G'")`."""
        if self._store.folder is None:
            return self._store.record.all(query, values)
        return rows_of(self._store.folder, query, values)

    def table(self) -> str:
        """The last evaluation as a text table. The header says which model is evaluated on which data."""
        from undrift.experiment.tables import stage_table, text_table

        return text_table(stage_table([self.summary]))

    def plot(self, metric: str | None = None) -> Any:
        """A plotly figure of a metric (the headline) over the rounds, one line per stage. Bands are one standard deviation over clients."""
        from undrift.report.clients import bands

        return bands(self.rows, metric)

    def curve(self, stage: str = "G", data: str = "global", metric: str | None = None) -> Any:
        """A metric (the headline) over the rounds, per client for L1 and L2: the input of the functions in `undrift.evaluate.views`."""
        from undrift.evaluate.views import curve

        return curve(self.rows, stage, data, metric or self.summary["headline"]["name"])

    def traces(self) -> Traces:
        """The notes that the parts recorded, as sparklines and figures: `print(result.traces())`, `.write("page.html")`."""
        from undrift.report.traces import traces

        return traces(self.rows, None if isinstance(self._setup, Unbuilt) else self._setup.federation)

    def __repr__(self) -> str:
        value = "—" if self.headline is None else f"{self.headline:.4f}"
        name = self.summary["headline"]["name"]
        return f"<run of {self.summary['method']}: {self.summary['rounds']} rounds, {name} {value} (stage G)>"


class Mixture(nn.Module):
    """The sum of several models' logits: Σ weight · logits."""

    def __init__(self, modules: list[nn.Module], weights: list[float]) -> None:
        super().__init__()
        self.members, self.weights = nn.ModuleList(modules), weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = [member(x) for member in self.members]
        logits = [out if isinstance(out, torch.Tensor) else out.logits for out in outputs]
        return torch.stack([weight * z for weight, z in zip(self.weights, logits)]).sum(0)
