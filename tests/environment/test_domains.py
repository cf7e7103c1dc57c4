"""Synthetic domains and augmentation: shapes, ranges, seeds, and the effect on images with known results."""

from __future__ import annotations

import pytest
import torch

from undrift.core.errors import BadRequest
from undrift.federation.environment import augment, domains

ALL = [
    domains.identity(),
    domains.grey(),
    domains.inverted(),
    domains.blurred(),
    domains.rotated(),
    domains.noisy(),
    domains.edge(),
]
AUGMENTS = [
    augment.crop(),
    augment.crop(pad=2, p=0.5),
    augment.flip(),
    augment.jitter(),
    augment.compose([augment.crop(), augment.flip(), augment.jitter()]),
]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_images(n=5, channels=3, height=12, width=9):
    return torch.rand(n, channels, height, width, generator=generator(7))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("transform", ALL + AUGMENTS, ids=repr)
def test_shape_range_seed_and_purity(transform, channels):
    images = random_images(channels=channels)
    before = images.clone()
    out = transform(images, generator(1))
    assert out.shape == images.shape
    assert out.dtype == torch.float32
    assert 0 <= out.min() <= out.max() <= 1
    assert torch.equal(images, before)
    assert out.data_ptr() != images.data_ptr()
    assert torch.equal(out, transform(images, generator(1)))
    assert transform(images[:0], generator(1)).shape == (0, channels, 12, 9)


def test_grey_has_equal_channels_and_keeps_grey():
    out = domains.grey()(random_images())
    assert torch.equal(out[:, 0], out[:, 2])
    one = random_images(channels=1)
    assert torch.equal(domains.grey()(one), one)


def test_inverting_twice_changes_nothing():
    images = random_images()
    assert torch.allclose(domains.inverted()(domains.inverted()(images)), images, atol=1e-6)


def test_blur_keeps_flat_images_and_spreads_a_point():
    flat = torch.full((1, 1, 9, 9), 0.4)
    assert torch.allclose(domains.blurred(2.0)(flat), flat, atol=1e-6)
    point = torch.zeros(1, 1, 15, 15)
    point[0, 0, 7, 7] = 1
    spread = domains.blurred(1.0)(point)
    assert spread.sum() == pytest.approx(1, abs=1e-5)
    assert spread[0, 0, 7, 7] == pytest.approx(0.159, abs=0.002)  # 1/(2π)


def test_rotation_by_a_quarter_is_exact_and_turns_counter_clockwise():
    images = random_images(height=8, width=8)
    assert torch.allclose(domains.rotated(90)(images), images.rot90(1, (2, 3)), atol=1e-5)
    assert torch.allclose(domains.rotated(360)(images), images, atol=1e-4)
    upright = torch.zeros(1, 1, 9, 21)
    upright[..., 10] = 1
    half_turn = domains.rotated(180)(upright)
    assert torch.allclose(half_turn, upright, atol=1e-5)


def test_noise_has_the_requested_deviation():
    grey = torch.full((20, 1, 32, 32), 0.5)
    assert (domains.noisy(0.1)(grey, generator()) - grey).std() == pytest.approx(0.1, rel=0.05)


def test_edges_are_where_the_image_changes():
    step = torch.zeros(1, 1, 8, 8)
    step[..., 4:] = 1
    out = domains.edge()(step)[0, 0]
    assert torch.equal(out[:, 3:5], torch.ones(8, 2))
    assert out[:, :3].abs().max() == 0
    assert out[:, 5:].abs().max() == 0


def test_crops_are_shifts_and_each_image_has_its_own():
    images = random_images(n=64, height=16, width=16)
    out = augment.crop(pad=2)(images, generator())
    padded = torch.nn.functional.pad(images, (2,) * 4)
    seen = set()
    for k in range(64):
        found = [
            (i, j) for i in range(5) for j in range(5) if torch.equal(out[k], padded[k, :, i : i + 16, j : j + 16])
        ]
        assert len(found) == 1
        seen.update(found)
    assert len(seen) > 15


def test_probabilities_decide_per_image():
    images = random_images(n=400)
    same = (augment.crop(pad=4, p=0.5)(images, generator()) == images).flatten(1).all(1).float().mean()
    assert same == pytest.approx(0.5 + 0.5 / 81, abs=0.08)
    flipped = (augment.flip(0.3)(images, generator()) != images).flatten(1).any(1).float().mean()
    assert flipped == pytest.approx(0.3, abs=0.08)
    assert torch.equal(augment.flip(1.0)(images, generator()), images.flip(3))
    assert torch.equal(augment.crop(p=0.0)(images, generator()), images)


def test_jitter_of_strength_zero_changes_nothing_and_saturation_keeps_grey():
    images = random_images()
    assert torch.allclose(augment.jitter(0, 0, 0)(images, generator()), images, atol=1e-6)
    one = random_images(channels=1)
    assert torch.allclose(augment.jitter(0, 0, 1.0)(one, generator()), one, atol=1e-6)
    bright = augment.jitter(0.2, 0, 0)(torch.full((500, 3, 2, 2), 0.5), generator())
    assert bright.min() == pytest.approx(0.4, abs=0.01)
    assert bright.max() == pytest.approx(0.6, abs=0.01)


def test_around_standardised_batches_pads_with_black():
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.2, 0.1)
    images = random_images()
    m, s = (torch.tensor(v).view(1, 3, 1, 1) for v in (mean, std))
    plain = augment.crop(pad=3)(images, generator(2))
    wrapped = augment.around(augment.crop(pad=3), mean, std)((images - m) / s, generator(2))
    assert torch.allclose(wrapped, (plain - m) / s, atol=1e-5)


def test_compose_is_one_after_the_other_from_one_stream():
    images, stream = random_images(), generator(3)
    expected = augment.flip()(augment.crop()(images, stream), stream)
    both = augment.compose([augment.crop(), augment.flip()])
    assert torch.equal(both(images, generator(3)), expected)
    assert both == augment.compose((augment.crop(), augment.flip()))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: domains.blurred(0), "sigma of blurred"),
        (lambda: domains.noisy(-1), "std of noisy"),
        (lambda: domains.rotated(float("inf")), "degrees of rotated"),
        (lambda: augment.crop(pad=-1), "pad of crop"),
        (lambda: augment.crop(p=2), "p of crop must be between 0 and 1, not 2"),
        (lambda: augment.flip("x"), "p of flip"),
        (lambda: augment.jitter(contrast=1.5), "contrast of jitter"),
    ],
)
def test_bad_parameters_are_one_sentence(make, reason):
    with pytest.raises(BadRequest, match=reason):
        make()


def test_public_names():
    assert set(domains.__all__) == {"identity", "grey", "inverted", "blurred", "rotated", "noisy", "edge"}
    assert {"crop", "flip", "jitter", "compose"} <= set(augment.__all__)
