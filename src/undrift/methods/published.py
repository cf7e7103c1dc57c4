"""Published names: a table from a name to the parts it stands for.

A row lists the parts that a name *brings* (only a part that the user names on that axis replaces them) and those that
it *prefers*. Its parameters are those of its parts: they are declared there, and a row adds or repeats none. `undrift
methods` prints this table.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from undrift.contract.compose import Bundle
from undrift.contract.parameters import parameters
from undrift.contract.parts import Part
from undrift.methods import combine, objectives, personalize, private, sampling, server, weighting
from undrift.methods.personalize.fliu import STEPS

PartClass = Callable[..., Part]


@dataclass(frozen=True)
class Published:
    """One published name."""

    name: str
    what: str  # one sentence
    paper: str
    brings: tuple[PartClass, ...] = ()
    prefers: tuple[PartClass, ...] | Callable[..., tuple[PartClass, ...]] = ()  # or a function of the parameters
    fixed: Mapping[str, Any] = field(default_factory=dict)  # parameters that the name sets

    @property
    def factory(self) -> Callable[..., Bundle]:
        """A function from the parts' parameters to the parts. The text grammar reads its signature."""

        def make(*args: Any, **options: Any) -> Bundle:
            given = {**signature.bind(*args, **options).arguments, **self.fixed}
            brings = tuple(
                kind(**{p.name: given[p.name] for p in parameters(kind) if p.name in given}) for kind in self.brings
            )
            prefers = self.prefers if isinstance(self.prefers, tuple) else self.prefers(**given)
            return Bundle(brings, tuple(kind() for kind in prefers))

        signature = self.signature
        make.__signature__ = signature  # type: ignore[attr-defined]
        make.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        make.__doc__ = self.what
        return make

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of all its parts, each name once."""
        merged: dict[str, inspect.Parameter] = {}
        for kind in self.brings:
            for declared in parameters(kind):
                if declared.name not in self.fixed and declared.name not in merged:
                    default = inspect.Parameter.empty if declared.default is dataclasses.MISSING else declared.default
                    merged[declared.name] = inspect.Parameter(
                        declared.name,
                        inspect.Parameter.POSITIONAL_OR_KEYWORD,
                        default=default,
                        annotation=declared.hint,
                    )
        return inspect.Signature(list(merged.values()))


def uniform_for_the_script(variant: str = "matching", **_: Any) -> tuple[PartClass, ...]:
    """FedNolowe's script compares with FedMA under uniform weights."""
    return (weighting.uniform,) if variant == "fednolowe" else ()


FEDAVG = "McMahan et al.: Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017"
FLIU = "Hussaini, Theiß, Stein: Local Performance vs. Out-of-Distribution Generalization, 2025"
REDDI = "Reddi et al.: Adaptive Federated Optimization, ICLR 2021"
YIN = "Yin et al.: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, ICML 2018"
KRUM = "Blanchard et al.: Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, NeurIPS 2017"

# fmt: off
ROWS = (
    # ---- averaging ---------------------------------------------------------------------------------------------
    Published("fedavg", "Local training and the mean of the models, weighted by size.",
              FEDAVG),
    Published("fedavg-uniform", "Local training and the plain mean of the models: the control where sizes differ.",
              FEDAVG, brings=(weighting.uniform,)),
    Published("fednova", "Averaging normalised by the number of local steps.",
              "Wang et al.: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS 2020",
              brings=(combine.fednova,)),
    Published("fedavgm", "Averaging with momentum at the server.",
              "Hsu et al.: Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019",
              brings=(server.momentum,)),
    Published("fedmr", "Recombination of the clients' models instead of their mean.",
              "Hu et al.: FedMR: Federated Learning via Model Recombination, 2022", brings=(server.fedmr,)),
    Published("fednolowe", "Averaging tilted towards clients with a low training loss.",
              "Le et al.: FedNolowe: A normalized loss-based weighted aggregation strategy, PLOS ONE 2025",
              brings=(weighting.fednolowe,)),
    # ---- local training ----------------------------------------------------------------------------------------
    Published("fedprox", "A pull towards the received model in local training.",
              "Li et al.: Federated Optimization in Heterogeneous Networks, MLSys 2020", brings=(objectives.fedprox,)),
    Published("scaffold", "Control variates that correct every local step.",
              "Karimireddy et al.: SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020",
              brings=(objectives.scaffold,), prefers=(weighting.uniform,)),
    Published("feddyn", "Dynamic regularisation: every client remembers its drift, and the server adds the drift of all.",
              "Acar et al.: Federated Learning Based on Dynamic Regularization, ICLR 2021",
              brings=(objectives.feddyn,), prefers=(weighting.uniform,)),
    Published("fedlc", "Logits calibrated by the client's label counts.",
              "Zhang et al.: Federated Learning with Label Distribution Skew via Logits Calibration, ICML 2022",
              brings=(objectives.fedlc,)),
    Published("flood", "Samples the model is unsure of weigh more in training, confident clients more in the mean.",
              "Ling et al.: Adaptive Dual-Weighting Framework for Federated Learning via Out-of-Distribution Detection",
              brings=( sampling.flood, weighting.flood, )),
    Published("fedbss", "A curriculum inside every local round, from easy to hard samples.",
              "Xu et al.: Federated Learning with Sample-level Client Drift Mitigation",
              brings=(sampling.fedbss,), prefers=(weighting.uniform,)),
    # ---- personal models ---------------------------------------------------------------------------------------
    Published("fliu", "Every client keeps an individual mix of its own and the global model.",
              FLIU, brings=(personalize.fliu,), prefers=(weighting.uniform,)),
    Published("fliu10", "FLIU with the fixed share γ = 0.1 of a client's own model.",
              FLIU, brings=(personalize.fliu,), prefers=(weighting.uniform,), fixed={"gamma": 0.1, "steps": STEPS, "shuffle": False}),
    Published("fliu25", "FLIU with the fixed share γ = 0.25 of a client's own model.",
              FLIU, brings=(personalize.fliu,), prefers=(weighting.uniform,), fixed={"gamma": 0.25, "steps": STEPS, "shuffle": False}),
    Published("fliu50", "FLIU with the fixed share γ = 0.5 of a client's own model.",
              FLIU, brings=(personalize.fliu,), prefers=(weighting.uniform,), fixed={"gamma": 0.5, "steps": STEPS, "shuffle": False}),
    Published("fliu75", "FLIU with the fixed share γ = 0.75 of a client's own model.",
              FLIU, brings=(personalize.fliu,), prefers=(weighting.uniform,), fixed={"gamma": 0.75, "steps": STEPS, "shuffle": False}),
    Published("fliu90", "FLIU with the fixed share γ = 0.9 of a client's own model.",
              FLIU, brings=(personalize.fliu,), prefers=(weighting.uniform,), fixed={"gamma": 0.9, "steps": STEPS, "shuffle": False}),
    Published("local", "Every client trains alone.",
              FLIU, brings=(personalize.local,)),
    Published("clt", "Every client trains alone (the name of `local` in the FLIU paper).",
              FLIU, brings=(personalize.local,)),
    Published("apfl", "A personal model beside the global one, and a learned share of it.",
              "Deng et al.: Adaptive Personalized Federated Learning, 2020", brings=(personalize.apfl,)),
    Published("fedfomo", "Every client mixes the models of others that help it.",
              "Zhang et al.: Personalized Federated Learning with First Order Model Optimization, ICLR 2021",
              brings=(personalize.fedfomo,)),
    Published("fedrep", "A shared body and private heads, trained in turn.",
              "Collins et al.: Exploiting Shared Representations for Personalized Federated Learning, ICML 2021",
              brings=( personalize.fedrep, private.head, )),
    Published("fedper", "The head stays at the client.",
              "Arivazhagan et al.: Federated Learning with Personalization Layers, 2019", brings=(private.head,)),
    Published("fedbn", "Normalisation layers stay at the client.",
              "Li et al.: FedBN: Federated Learning on Non-IID Features via Local Batch Normalization, ICLR 2021",
              brings=(private.norms,)),
    # ---- weighting ---------------------------------------------------------------------------------------------
    Published("bound", "Averaging in which a client counts less the wider its generalisation bound is.",
              "Xu et al.: Aggregation Weighting of Federated Learning via Generalization Bound Estimation", brings=(weighting.bound,)),
    Published("fedasl", "Averaging in which clients near the median loss count most.",
              "Talukder, Islam: Computationally Efficient Auto-Weighted Aggregation for Heterogeneous Federated Learning, 2022",
              brings=(weighting.fedasl,)),
    Published("feddisco", "Size weights corrected by how far a client's labels are from uniform.",
              "Ye et al.: FedDisco: Federated Learning with Discrepancy-Aware Collaboration, ICML 2023", brings=(weighting.feddisco,)),
    Published("aflama", "A reconstruction: averaging by accuracy on a validation set of the server.",
              "Wang et al.: Accuracy-based Federated Learning with Adaptive Model Aggregation, 2024 (a reconstruction)",
              brings=(weighting.aflama,)),
    # ---- local training: baselines of the papers ---------------------------------------------------------------
    Published("moon", "Features pulled towards the received model's and pushed from the last local model's.",
              "Li, He, Song: Model-Contrastive Federated Learning, CVPR 2021", brings=(objectives.moon,), fixed={"features": None}),
    Published("feddecorr", "Features kept uncorrelated, against dimensional collapse.",
              "Shi et al.: Towards Understanding and Mitigating Dimensional Collapse in Heterogeneous Federated Learning, ICLR 2023",
              brings=(objectives.feddecorr,)),
    Published("fednp", "A learned prior on the last layer, from what the other clients know.",
              "Wu et al.: FedNP: Towards Non-IID Federated Learning via Federated Neural Propagation, AAAI 2023",
              brings=(objectives.fednp,)),
    Published("fedrs", "Scores of classes a client does not have are scaled down.",
              "Li, Zhan: FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data, KDD 2021",
              brings=(objectives.fedrs,)),
    Published("fedsam", "Local steps along the gradient at the worst point nearby: flat minima.",
              "Qu et al.: Generalized Federated Learning via Sharpness Aware Minimization, ICML 2022", brings=(objectives.fedsam,)),
    Published("fedntd", "What the received model says about the classes that are not true is kept.",
              "Lee et al.: Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, NeurIPS 2022",
              brings=(objectives.fedntd,)),
    # ---- the server --------------------------------------------------------------------------------------------
    Published("fedma", "Hidden units are matched before they are averaged.",
              "Wang et al.: Federated Learning with Matched Averaging, ICLR 2020",
              brings=(combine.fedma,), prefers=uniform_for_the_script),
    Published("fedcda", "Averaging across rounds: of every client the cached model that fits the others best.",
              "Wang et al.: FedCDA: Federated Learning with Cross-Rounds Divergence-Aware Aggregation, ICLR 2024",
              brings=(combine.fedcda,)),
    Published("inco", "Uniform averaging in which a shallow layer of each stage steers the deep ones.",
              "Chan et al.: Internal Cross-layer Gradients for Extending Homogeneity to Heterogeneity in Federated Learning, ICLR 2024",
              brings=(combine.inco,)),
    Published("fedlaw", "Weights and a shrinking factor learned on a proxy set.",
              "Li et al.: Revisiting Weighted Aggregation in Federated Learning with Neural Networks, ICML 2023",
              brings=(combine.fedlaw,)),
    Published("fedexp", "A server step that grows when the clients' updates disagree.",
              "Jhunjhunwala, Wang, Joshi: FedExP: Speeding Up Federated Averaging via Extrapolation, ICLR 2023", brings=(server.fedexp,)),
    Published("fedadagrad", "Adagrad at the server.",
              REDDI, brings=(server.fedadagrad,)),
    Published("fedadam", "Adam at the server, without bias correction.",
              REDDI, brings=(server.fedadam,)),
    Published("fedyogi", "Yogi at the server.",
              REDDI, brings=(server.fedyogi,)),
    # ---- robust rules ------------------------------------------------------------------------------------------
    Published("median", "The coordinate-wise median of the clients' updates.",
              YIN, brings=(combine.median,)),
    Published("trimmed", "The mean of the updates without the smallest and largest, coordinate by coordinate.",
              YIN, brings=(combine.trimmed,)),
    Published("krum", "The one update that has the nearest neighbours.",
              KRUM, brings=(combine.krum,), fixed={"multi": False}),
    Published("multikrum", "The mean of the updates that have the nearest neighbours.",
              KRUM, brings=(combine.krum,), fixed={"multi": True}),
    Published("geomedian", "The geometric median of the clients' updates.",
              "Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning, IEEE TSP 2022", brings=(combine.geomedian,)),
    Published("normbound", "Updates longer than a bound are shortened before they are averaged.",
              "Sun et al.: Can You Really Backdoor Federated Learning?, 2019", brings=(combine.normbound,)),
    # ---- personal models: baselines of the papers --------------------------------------------------------------
    Published("ditto", "A personal model beside the global one, held near it.",
              "Li et al.: Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021", brings=(personalize.ditto,)),
    Published("pfedme", "A personal model that is the proximal point of the global one, which follows it.",
              "Dinh, Tran, Nguyen: Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020",
              brings=(personalize.pfedme,), prefers=(weighting.uniform,)),
    Published("fedproto", "Clients keep their models and agree on class prototypes, the mean features of a class.",
              "Tan et al.: FedProto: Federated Prototype Learning across Heterogeneous Clients, AAAI 2022",
              brings=( objectives.fedproto, private.named, ), fixed={"pattern": "*", "size": None}),
    # ---- low-rank adapters -------------------------------------------------------------------------------------
    Published("ffa-lora", "Adapters whose A keeps its initial values: only B is trained and sent, and the mean is exact.",
              "Sun et al.: Improving LoRA in Privacy-preserving Federated Learning, ICLR 2024", brings=(private.ffalora,)),
    Published("fedsa-lora", "Adapters whose A is averaged and whose B stays at the client.",
              "Guo et al.: Selective Aggregation for Low-Rank Adaptation in Federated Learning, ICLR 2025", brings=(private.fedsalora,)),
    Published("flexlora", "The products of the adapters are averaged, and the mean is decomposed to their rank again.",
              "Bai et al.: Federated Fine-tuning of Large Language Models under Heterogeneous Tasks and Client Resources, NeurIPS 2024",
              brings=(combine.flexlora,)),
    Published("flora", "The clients' adapters are stacked and merged, and new ones begin every round.",
              "Wang et al.: FLoRA: Federated Fine-Tuning Large Language Models with Heterogeneous Low-Rank Adaptations, NeurIPS 2024",
              brings=(combine.flora,)),
    Published("hetlora", "Adapters of a rank that differs from client to client.",
              "Cho et al.: Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation Models, EMNLP 2024",
              brings=(server.hetlora,), prefers=(weighting.loranorm,)),
    Published("finetune", "Every client uses the global model after a few more epochs on its own data; evaluation only.",
              "a baseline without a paper", brings=(personalize.finetune,)),
)
# fmt: on
PUBLISHED: dict[str, Published] = {row.name: row for row in ROWS}
