"""`--adapt lora`: adapters of peft on a network of one's own and on one of transformers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.core.low_rank import adapters
from undrift.models.adapt import adapter_of, chosen, lora

COMPOSED = "fedsa-lora+scaffold@fednolowe"
RUN = {"rounds": 2, "epochs": 1, "batch": 16, "lr": 0.1, "out": False, "engine": "inline"}


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10))


def digits(clients: int = 5):
    return ud.federate("digits", "dirichlet(0.5)", clients=clients, seed=0)


def test_a_pattern_fits_a_full_name_or_its_last_part():
    module = nn.ModuleDict(
        {"a": nn.ModuleDict({"query": nn.Linear(2, 2), "value": nn.Linear(2, 2)}), "head": nn.Linear(2, 2)}
    )
    assert chosen(module, None, "head") == ["a.query", "a.value"]
    assert chosen(module, ["query"], "head") == ["a.query"]
    assert chosen(module, ["a.*", "head"], None) == ["a.query", "a.value", "head"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("lora(rank=0)", "rank"),
        ("lora(rnak=8)", "rank"),
        ("dora(rank=8)", "lora"),
        ("lora(dropout=1)", "dropout"),
        ("json:dumps(rank=8)", "lora"),
    ],
)
def test_bad_adapters_are_refused_in_one_sentence(given, sentence):
    with pytest.raises(BadRequest, match=sentence):
        adapter_of(given)


def test_an_adapter_is_read_from_text():
    assert adapter_of("lora(rank=8, alpha=16, targets=[query, value])") == lora(8, 16, ["query", "value"])


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(
        BadRequest, match=r"no layer of the model that can have an adapter fits 'query'; choose from 1, 3, 5"
    ):
        chosen(network(), ["query"], None)


@pytest.mark.extras
class TestWithPeft:
    def test_only_the_adapters_are_trained_and_the_output_is_the_same_at_first(self):
        module, x = network(), torch.randn(4, 64)
        before = module(x)
        adapted = lora(rank=4)(module, "5")
        assert torch.equal(adapted(x), before)
        trained = {name: tuple(p.shape) for name, p in adapted.named_parameters() if p.requires_grad}
        assert trained == {
            "1.lora_A.default.weight": (4, 64), "1.lora_B.default.weight": (16, 4),
            "3.lora_A.default.weight": (4, 16), "3.lora_B.default.weight": (16, 4),
        }  # fmt: skip

    def test_the_layer_adds_alpha_over_rank_times_b_a(self):
        module, x = network(), torch.randn(4, 64)
        weight = module[1].weight.detach().clone()
        adapted = lora(rank=4, alpha=8.0, targets="1", merged=True)(module, None)
        layer = adapted[1]
        with torch.no_grad():
            layer.lora_B.default.weight.normal_()
            layer.lora_merged.normal_()
        delta = layer.lora_B.default.weight @ layer.lora_A.default.weight + layer.lora_merged
        expected = x @ (weight + 8.0 / 4 * delta).T + layer.base_layer.bias
        assert torch.allclose(layer(x), expected, atol=1e-4)

    @pytest.mark.parametrize(
        "method", ["fedavg", "ffa-lora", "fedsa-lora", "flexlora", "flora", "hetlora", "fedsa-lora+scaffold@fednolowe"]
    )
    def test_every_method_gives_the_same_bits_inline_and_on_processes(self, method):
        settings = {
            **RUN,
            "model": network,
            "adapt": "lora(rank=4, merged=true)" if method == "flora" else "lora(rank=4)",
        }
        inline = ud.run(method, digits(), **settings)
        spread = ud.run(method, digits(), **{**settings, "engine": "processes", "workers": 2})
        assert torch.equal(inline.vector, spread.vector)
        assert len(adapters(inline.setup.plan.layout)) == 2

    def test_a_rank_beyond_the_layers_is_refused(self):
        with pytest.raises(BadRequest, match="lora has rank 1000000, and no target has more than 64 inputs or outputs"):
            lora(rank=1_000_000)(network(), "5")

    def test_a_run_is_repeated_and_resumed_from_its_file(self, tmp_path):
        out = str(tmp_path / "run")
        settings = {**RUN, "model": "mlp(16)", "adapt": 'lora(rank=2, train="*bias")', "clients": 4, "out": out}
        ud.run("fedavg", **settings)
        more = ud.resume(out, rounds=4)
        straight = ud.run("fedavg", **{**settings, "rounds": 4, "out": False})
        assert torch.equal(more.vector, straight.vector)

    def test_a_base_from_a_file_is_read_before_the_adapters_are_added(self, tmp_path):
        import safetensors.torch

        base = network().state_dict()
        changed = {name: value + 1.0 for name, value in base.items()}
        safetensors.torch.save_file(changed, tmp_path / "base.safetensors")
        result = ud.run("fedavg", digits(), model=network, adapt="lora", init=str(tmp_path / "base.safetensors"), **RUN)
        assert torch.equal(result.model.state_dict()["1.base_layer.weight"], changed["1.weight"])

    def test_the_head_of_an_adapted_head_is_none(self):
        """B is zero at first, so the base's output equals the logits: it must not be taken for the head."""
        with pytest.raises(BadRequest, match="needs the features that enter the last linear layer"):
            ud.run("moon", digits(), model=network, adapt='lora(targets="5")', **RUN)

    def test_a_tiny_transformer_of_transformers(self):
        """Fifty clients. What travels up and down is the adapter, and nothing else."""
        outcome = transformer_bytes(50)
        assert outcome["adapter"] == 2 * 2 * 4 * (32 + 32) * 4  # two layers, query and value, rank 4, float32
        assert set(outcome["down"]) == set(outcome["up"]) == {outcome["adapter"]}

    def test_a_local_folder_in_bfloat16_stays_so(self, tmp_path):
        """A base of transformers from a folder: loaded without a hub, held and hashed in its own dtype."""
        from transformers import BertForSequenceClassification

        Bert().bert.bfloat16().save_pretrained(tmp_path / "base")

        def network():
            module = Bert()
            module.bert = BertForSequenceClassification.from_pretrained(
                tmp_path / "base", dtype=torch.bfloat16, local_files_only=True
            )
            return module

        federation = tokens(4)
        settings = {**RUN, "model": network, "adapt": "lora(rank=4, targets=[query, value])"}
        result = ud.run("fedsa-lora", federation, **settings)
        frozen = result.setup.plan.layout.frozen
        assert {entry.dtype for entry in frozen} == {"bfloat16"}
        assert result.vector.dtype == torch.float32
        assert not [said for said in result.setup.notices if "held as float32" in said]
        spread = ud.run("fedsa-lora", federation, **{**settings, "engine": "processes", "workers": 2})
        assert torch.equal(result.vector, spread.vector)


def tokens(clients: int):
    """Rows of six token ids and a label of two classes."""
    draw = torch.Generator().manual_seed(0)
    rows = [
        (torch.randint(1, 40, (8, 6), generator=draw).float().numpy(), torch.randint(2, (8,), generator=draw).numpy())
        for _ in range(clients)
    ]
    return ud.Federation.from_clients(rows)


def transformer_bytes(clients: int) -> dict:
    """A BERT from a config on rows of token ids: bytes of every order's and reply's vector."""
    from undrift.engine.inline import Inline

    counted: dict = {"down": [], "up": []}

    class Border(Inline):
        def map(self, orders):
            replies = super().map(orders)
            training = [(o, r) for o, r in zip(orders, replies) if o.work == "train"]
            counted["down"] += [o.vector.numel() * o.vector.element_size() for o, _ in training]
            counted["up"] += [r.vector.numel() * r.vector.element_size() for _, r in training]
            return replies

    federation = tokens(clients)
    from undrift.experiment.options import from_keywords
    from undrift.experiment.setup import prepare
    from undrift.store.run_store import RunStore

    options = from_keywords(
        {**RUN, "model": bert, "adapt": "lora(rank=4, targets=[query, value])", "cohort": 1.0, "method": "fedavg"}
    )
    setup = prepare(options, federation)
    store = RunStore(None)
    loop = setup.loop(Border(setup.runtime, store.states), store)
    loop.run(loop.begin())
    assert len(counted["up"]) == 2 * clients
    return counted | {"adapter": 4 * setup.plan.layout.nP}


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=8, num_labels=2,
        )  # fmt: skip
        self.bert = BertForSequenceClassification(config)

    def forward(self, x):
        return self.bert(input_ids=x.long())


def bert() -> nn.Module:
    torch.manual_seed(0)
    return Bert()
