"""Build everything a run needs from its options: federation, network, method and plan, with all checks before round 0."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from undrift import tasks
from undrift.contract.compose import Method
from undrift.contract.context import Plan
from undrift.contract.parts import AXES, defines
from undrift.contract.task import Task
from undrift.core import text
from undrift.core.errors import BadRequest
from undrift.core.low_rank import is_adapted
from undrift.core.vector import Flat
from undrift.core.words import clipped, shown
from undrift.evaluate import options as evaluation
from undrift.evaluate.stages import StageEvaluator
from undrift.experiment import network
from undrift.experiment.callback import RunCallback
from undrift.experiment.options import THRESHOLDS, Options
from undrift.federation import images
from undrift.federation.dealing import federate
from undrift.federation.environment import faults
from undrift.federation.federation import Federation
from undrift.methods.naming import belonging, method, part, part_tables
from undrift.round import selection
from undrift.round.engine import Engine
from undrift.round.lockstep.decide import decided
from undrift.round.loop import Evaluator, Loop
from undrift.round.runtime import Runtime
from undrift.store.run_store import RunStore

EVALUATE_ON = {"both": ("own", "global"), "own": ("own",), "validation": ("own", "validation")}


@dataclass
class Setup:
    """A run that is ready to start."""

    options: Options
    federation: Federation
    method: Method
    plan: Plan
    runtime: Runtime
    selection: selection.Selection
    model_name: str
    notices: list[str]  # shown to the user before round 0
    faults: list[Any]

    def epsilon(self, rounds: int) -> float | None:
        """The privacy loss after so many rounds, where an upload part counts it (∞ without noise)."""
        return epsilon_after(self.plan, rounds)

    def evaluator(self, engine: Engine) -> StageEvaluator:
        """Evaluates the clients when and where the options say, on an engine."""
        asked = self.options
        return StageEvaluator(
            self.runtime, engine, asked.evaluate_every, asked.evaluate_clients, asked.evaluate_at or ()
        )

    def loop(
        self, engine: Engine, store: RunStore, callback: RunCallback | None = None, evaluator: Evaluator | None = None
    ) -> Loop:
        """The loop of this run's rounds on an engine."""
        options, evaluator = self.options, evaluator or self.evaluator(engine)
        return Loop(
            self.runtime, engine, store, self.selection, evaluator, callback.on_round if callback is not None else None,
            options.tolerate, options.stop_at, callback.on_metrics if callback is not None else None,
        )  # fmt: skip


def prepare(
    options: Options, federation: Federation | None = None, parts: list[str] | None = None, trained: str = ""
) -> Setup:
    """Build everything a run needs. What cannot work is refused here, before round 0, with one sentence. `trained`: how the
    clients of a run that is resumed have trained so far, as run.toml says it."""
    federation = federation or build_federation(options)
    if options.unseen and not federation.unseen:
        raise BadRequest("unseen clients are chosen when a federation is made; give unseen to federate or from_clients")
    if options.evaluate_on == "validation" and not federation.validation:
        raise BadRequest(
            "--evaluate-on validation evaluates clients on validation data, and there is none; add --validation 0.1, or give "
            "--evaluate-on own"
        )
    task = run_task(options, federation)
    composed = composition(options, parts)
    flat, model_name = network.build_network(options, federation, task, composed.freezes)
    chosen = selection.chosen(options.selection, options.cohort, federation.clients, options.rounds)
    if any(part.keeps_empty_cohorts for part in composed.on("upload")):
        chosen = selection.keeping_empty(chosen)
    plan = make_plan(options, federation, flat, composed, chosen, task)
    if options.stop_at_epsilon is not None and (rounds := affordable(plan, options.stop_at_epsilon)) < options.rounds:
        options = replace(options, rounds=rounds)
        kept = tuple(one for one in composed.parts if one.axis != "upload")
        composed = replace(composed, parts=(*kept, *plan.method.on("upload")))  # noise as it was calibrated
        plan = make_plan(options, federation, flat, composed, chosen, task)
    notices = [*plan.method.notices, *flat.layout.notes, *federation_notices(federation)]
    for problem in plan.method.check(plan):
        if problem.level == "error":
            raise BadRequest(as_typed(composed, problem.sentence))
        notices.append(problem.sentence)
    options = with_thresholds(options, task)
    trial = network.Trial(flat, federation)
    network.try_task(task, trial)
    loss, augment = network.loss(options.loss, trial, task), network.augmentation(options.augment, federation)
    plain = options.loss is None and type(task) is tasks.classification
    stack, why = decided(options.lockstep, plan, flat, plain, augment is not None, trial.x, trained)
    plan = replace(plan, lockstep=stack, lockstep_why=why)
    runtime = Runtime(
        plan, federation, flat, loss, augment,
        evaluation.own_metrics(options.metrics, trial.logits, trial.y, task),
        ood=evaluation.other_set(options.ood, federation),
    )  # fmt: skip
    runtime.diagnostics = evaluation.diagnostics(options.diagnose, runtime)
    return Setup(
        options, federation, plan.method, plan, runtime, chosen, model_name, notices, read_faults(options.faults)
    )


def with_thresholds(options: Options, task: Task) -> Options:
    """The options with thresholds that the task's headline can reach. The usual ones are shares."""
    asked = {"--stop-at": () if options.stop_at is None else (options.stop_at,), "--thresholds": options.thresholds}
    if not task.percent:
        return replace(options, thresholds=() if options.thresholds == THRESHOLDS else options.thresholds)
    for flag, values in asked.items():
        for value in values:
            if not 0 <= value <= 1 or (flag == "--stop-at" and value == 0):
                least = "above" if flag == "--stop-at" else "of at least"
                raise BadRequest(f"{flag} must be a number {least} 0 and at most 1, a share, not {value:g}")
    return options


def make_plan(
    options: Options, federation: Federation, flat: Flat, composed: Method, chosen: selection.Selection, task: Task
) -> Plan:
    """The plan of the run, with the method's schedules and private entries resolved."""
    plan = Plan(
        rounds=options.rounds, epochs=options.epochs, batch=options.batch, lr=options.lr, lr_decay=options.lr_decay,
        optimizer=options.optimizer, momentum=options.momentum, weight_decay=options.weight_decay, clip=options.clip,
        persist_momentum=options.persist_momentum, seed=options.seed, clients=federation.clients,
        total=federation.total, classes=federation.classes, layout=flat.layout, method=composed, task=task,
        engine=options.engine, lacks=missing_needs(options, federation, flat, composed, task),
        cohort=selection.expected_cohort(chosen, federation.clients), keep_trained=options.evaluate_clients != "cohort",
        cohorts=selection.kind_of_cohort(chosen, federation.clients), uncovered=options.uncovered,
        secret=options.engine == "flower" and any(one.protects for one in composed.parts),
        weight_cap=1.0 if options.weight_cap is None else options.weight_cap,
        evaluate_on=EVALUATE_ON[options.evaluate_on],
    )  # fmt: skip
    try:
        composed = composed.resolve(plan)
        private = composed.private_names(flat.layout)
    except BadRequest as error:
        raise BadRequest(as_typed(composed, str(error))) from None
    return replace(
        plan, method=composed, private=composed.private_mask(flat.layout),
        server_only=composed.server_mask(flat.layout),
        private_integers=frozenset(private & set(flat.layout.integers)),
    )  # fmt: skip


def as_typed(composed: Method, sentence: str) -> str:
    """A part's sentence, with the method as it was typed where the part has another name: fedbn's part is norms."""
    names = re.findall(r"(?:^|[+@])([^+@(]+)", composed.name)  # without parameters, which may be any text
    return sentence if any(name in sentence for name in names) else f"{clipped(composed.name)}: {sentence}"


def run_task(options: Options, federation: Federation) -> Task:
    """The task of the run: that of the federation, or another one that takes the same targets."""
    if options.task is None:
        return federation.task
    task = tasks.read(options.task).with_outputs(federation.classes).completed(federation.task)
    for x, y in ((federation.x, federation.y), (federation.test_x, federation.test_y)):
        if len(y):
            task.in_range(task.targets(images.network_input(x), y, federation.name), federation.name)
    return task


def epsilon_after(plan: Plan, rounds: int) -> float | None:
    statements = [part.privacy(plan, rounds) for part in plan.method.on("upload")]
    spent = [math.inf if one["epsilon"] is None else float(one["epsilon"]) for one in statements if one is not None]
    return sum(spent) if spent else None


def affordable(plan: Plan, epsilon: float) -> int:
    """How many of the planned rounds spend at most this ε. It is known before round 0."""
    if epsilon_after(plan, 1) is None:
        raise BadRequest('--stop-at-epsilon needs an upload part that counts ε, as in --upload "dp(noise=1)"')
    rounds = sum((epsilon_after(plan, number) or 0.0) <= epsilon for number in range(1, plan.rounds + 1))
    if not rounds:
        raise BadRequest(
            f"the first round spends ε = {epsilon_after(plan, 1):.3g}, more than --stop-at-epsilon {epsilon:g}; add noise"
        )
    return rounds


def missing_needs(options: Options, federation: Federation, flat: Flat, composed: Method, task: Task) -> frozenset[str]:
    """What a part may need and this run cannot provide."""
    lacks = set()
    several = network.Trial(flat, federation).logits.dim() > 2  # predictions per sample: no one vector enters the head
    personalize = composed.one("personalize")
    in_turn = personalize is not None and defines(personalize, "update_mask")
    if options.optimizer != "sgd" or options.persist_momentum or in_turn:
        lacks.add("effective_steps")
    if federation.proxy() is None:
        lacks.add("proxy")
    if flat.layout.head is None or several:
        lacks.add("features")
    if not is_adapted(flat.layout):
        lacks.add("adapters")
    return frozenset(lacks | ({"labels", "class_logits", "errors"} - set(task.provides)))


def federation_notices(federation: Federation) -> list[str]:
    """Notices about the data: what was held out or moved without being asked for."""
    notices = []
    if share := federation.record.get("test_share"):
        notices.append(f"{federation.name} has no test part: {share:.0%} of every client's samples are held out as one")
    if lifted := federation.record.get("repaired"):
        notices.append(
            f"the partition left {lifted} clients with too few samples: they got samples from the largest clients"
        )
    return notices


def build_federation(options: Options) -> Federation:
    """The federation of the options."""
    return federate(
        options.data, options.partition, options.clients, noise=options.noise, domains=options.domains,
        validation=options.validation, proxy=options.proxy, unseen=options.unseen, seed=options.federation_seed,
        task=options.task, standardise=options.standardise, target=options.target, client_column=options.client_column,
    )  # fmt: skip


def composition(options: Options, parts: list[str] | None) -> Method:
    """The method of the options: a text, a Method, a part, a list of them, or the resolved parts of a run.toml."""
    axes = [(axis, getattr(options, axis)) for axis in AXES if getattr(options, axis) is not None]
    axes = [(axis, one) for axis, given in axes for one in parts_of(axis, given)]
    if parts is not None:  # complete, with defaults: a part given for an axis replaces the one listed
        return method(Method(str(options.method), tuple(map(written_part, parts))), axes=axes)
    given = options.method
    pieces = list(given) if isinstance(given, (list, tuple)) else [given]
    return method(*pieces, axes=axes)


def parts_of(axis: str, given: Any) -> list[Any]:
    """The parts that an option names: one, or for --upload several joined by +."""
    if axis == "upload":
        found = text.several("upload", given, part_tables()["upload"])
        return [belonging("upload", str(given), one) for one in found]
    return [part(axis, given) if isinstance(given, str) else given]


def written_part(written: str) -> Any:
    """A part as run.toml lists it."""
    axis, call = split_axis(written)
    try:
        return part(axis, call)
    except BadRequest as wrong:
        raise BadRequest(f"run.toml lists the part {shown(written)}: {wrong}") from None


def split_axis(written: str) -> tuple[str, text.Call]:
    """`"axis.name(…)"` of run.toml -> ("axis", name(…))."""
    call = text.parse(written)
    axis, _, name = call.name.partition(".")
    if axis not in AXES or not name:
        raise BadRequest(f"a part of run.toml is written axis.name(…), not {written!r}")
    return axis, replace(call, name=name)


def read_faults(given: Any) -> list[Any]:
    """The faults of `nan(0.1)+drop(0.2)`, of a fault, or of a list of them."""
    found = text.several("fault", given, {name: getattr(faults, name) for name in faults.__all__})
    for one in found:
        if not all(hasattr(one, hook) for hook in ("hits", "order", "reply")):
            raise BadRequest(
                f"--faults {shown(given)} gives {type(one).__name__}, not a fault; name one, such as drop(0.1)"
            )
    return found
