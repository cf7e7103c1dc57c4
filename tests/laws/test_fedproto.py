"""Laws of FedProto."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.methods import objectives
from undrift.testing import run_parts


def part(**options):
    return objectives.fedproto(size=6, **options)  # three classes, two features


def message(prototypes, counts):
    return {"prototypes": torch.tensor(prototypes).float().flatten(), "counts": torch.tensor(counts).float()}


def receive(server, replies, memory, messages, n):
    where = server(memory=memory)
    part().receive(where, replies(len(messages), client_messages=messages, n=n))
    return where.memory


def test_prototypes_are_means_weighed_by_counts(server, replies):
    first = message([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]], [3, 0, 0])
    second = message([[5.0, 9.0], [2.0, 4.0], [0.0, 0.0]], [1, 2, 0])
    old = message([[7.0, 7.0], [7.0, 7.0], [7.0, 7.0]], [1, 1, 1])
    memory = receive(server, replies, old, [first, second], [3, 3])
    # class 0: (3·1 + 1·5)/4 and (3·1 + 1·9)/4; class 1: the second client alone; class 2: nobody, so it stays
    assert memory["prototypes"].view(3, 2).tolist() == [[2.0, 3.0], [2.0, 4.0], [7.0, 7.0]]
    assert memory["counts"].tolist() == [4.0, 2.0, 1.0]


def test_a_claimed_count_is_at_most_the_clients_samples(server, replies):
    liar, honest = message([[9.0, 9.0]] * 3, [1e9, -5.0, 0]), message([[1.0, 1.0]] * 3, [3, 1, 0])
    memory = receive(server, replies, message([[0.0, 0.0]] * 3, [0, 0, 0]), [liar, honest], [1, 4])
    assert memory["prototypes"].view(3, 2)[:2].tolist() == [[3.0, 3.0], [1.0, 1.0]]


def test_the_term_pulls_features_to_their_class(batch, job):
    made = batch(torch.zeros(2, 3), torch.tensor([1, 2]))
    made.features = torch.tensor([[1.0, 2.0], [5.0, 5.0]])
    scratch = part().before_training(job(), None, message([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0, 4, 0]))
    # (1² + 1²)/2 for the first sample; class 2 has no prototype yet and adds nothing
    assert part(lam=3.0).loss(made, job(), scratch).item() == pytest.approx(3.0 * 1.0 / 2)


def test_sent_prototypes_are_the_mean_features_of_each_class(tiny):
    run = run_parts("objective.fedproto", tiny, rounds=1)
    assert run.memory["counts"].sum() == sum(len(shard) for shard in tiny.shards)
    labels = torch.cat([tiny.train(client)[1] for client in range(4)])
    assert run.memory["counts"].tolist() == torch.bincount(labels, minlength=3).tolist()


def test_nothing_of_the_model_leaves_a_client(tiny):
    run = run_parts("fedproto", tiny)
    assert torch.equal(run.sent, run.setup.runtime.initial)  # what the server has is Θ⁰
    assert run.setup.plan.private.all()
    assert set(run.setup.method.parts[0].uplink) == {"prototypes", "counts"}


def test_without_a_pull_it_is_training_alone_bit_for_bit(tiny):
    pulled, alone = run_parts("fedproto(lam=0)", tiny), run_parts('private.named("*")', tiny)
    for client in range(4):
        assert torch.equal(pulled.raw_state(client)["private"]["vector"], alone.raw_state(client)["private"]["vector"])
    assert torch.equal(run_parts("objective.fedproto(lam=0)", tiny).vector, run_parts("fedavg", tiny).vector)


def test_a_strong_pull_brings_the_clients_prototypes_together(tiny):
    def spread(text):
        """How far the clients' prototypes of a class lie from their mean, on their own samples."""
        run, flat, found = run_parts(text, tiny, rounds=15), None, []
        for client in range(4):
            flat = run.setup.runtime.spare(0)
            flat.load(run.raw_state(client)["private"]["vector"])
            flat.watch()
            flat.module.eval()
            x, y = tiny.train(client)
            with torch.no_grad():
                flat(x)
            found.append(torch.stack([flat.features[y == c].mean(0) for c in range(3)]))
        return torch.stack(found).var(0).sum().item()

    assert spread("fedproto(lam=3)") < 0.5 * spread("fedproto(lam=0)")


def test_bad_values_are_refused():
    with pytest.raises(BadRequest, match="fedproto: lam"):
        objectives.fedproto(lam=-1)
