"""A site's data: standardised as in the simulation, from arrays, image folders and tables."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import undrift as ud
from undrift.core.errors import BadRequest
from undrift.deploy.client import import_data_py
from undrift.deploy.from_run import settings_of
from undrift.deploy.init import init
from undrift.deploy.site_data import image_folder, standardised, table


def test_a_sites_template_standardises_as_the_simulation(tmp_path):
    init(tmp_path / "app", {"method": "fedavg", "data": "digits"}, {"sites": ["berlin"]})
    digits, federation = ud.data.load("digits"), ud.federate("digits", "iid", clients=2, seed=0)
    rows = federation.rows(1)
    np.savez(tmp_path / "app" / "site" / "data.npz", x=digits.x_train[rows], y=digits.y_train[rows])
    module = import_data_py(tmp_path / "app" / "site" / "data.py", "berlin")
    assert (digits.mean, digits.std, (1, 8, 8)) == (module.MEAN, module.STD, module.SHAPE)
    x, y = module.load()
    expected_x, expected_y = federation.train(1)
    assert torch.equal(x.permute(0, 2, 3, 1), expected_x)
    assert np.array_equal(y, expected_y)


TOWNS = ("berlin", "oslo", "turin")


def as_csv(path, task):
    target = (lambda age: f"{3 * age + 1}") if task else (lambda age: "yes" if age > 34 else "no")
    rows = [f"{20 + 3 * k};{TOWNS[k % 3]};{150 + k * k % 17};{target(20 + 3 * k)}" for k in range(18)]
    path.write_text("\n".join(["age;town;height;found", *rows]))


def as_folder(path, task):
    from PIL import Image

    for k in range(12):
        folder = path / TOWNS[k % 3] / ("dog", "cat")[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (12, 12), 20 * k).save(folder / f"{k}.png")


@pytest.mark.parametrize(
    ("name", "make", "task", "standardise"),
    [
        ("ill.csv", as_csv, None, None),
        ("price.csv", as_csv, "regression", None),
        ("ill.csv", as_csv, None, "30/10"),
        ("animals", as_folder, None, None),
    ],
)
def test_an_app_made_from_a_run_on_ones_own_data_reads_a_sites_data_as_the_run_did(
    name, make, task, standardise, tmp_path, monkeypatch
):
    """Means, deviations, columns and labels are those of the run: every site gets the simulation's numbers, bit for bit."""
    make(tmp_path / name, task)
    columns = {"target": "found", "client_column": "town"} if name.endswith("csv") else {}
    options = {
        "data": str(tmp_path / name),
        **columns,
        "partition": "natural",
        "task": task,
        "standardise": standardise,
    }
    ud.run("fedavg", **options, model="mlp(4)", rounds=1, out=tmp_path / "chosen")
    app, _ = init(tmp_path / "app", settings_of(str(tmp_path / "chosen")), {"sites": list(TOWNS)})
    federation = ud.federate(**options)
    for number, town in enumerate(TOWNS):
        site = tmp_path / "sites" / town
        site.mkdir(parents=True)
        shutil.copy(tmp_path / "app" / "site" / "data.py", site)
        if columns:
            header, *rows = (tmp_path / name).read_text().splitlines()
            own = [row.replace(f";{town};", ";") for row in rows if town in row]
            (site / "table.csv").write_text("\n".join([header.replace(";town;", ";"), *own]))
        else:
            shutil.copytree(tmp_path / name / town, site / "images")
        module = import_data_py(site / "data.py", town)
        assert tuple(module.LABELS) == app.labels
        x, y = module.load()
        expected = federation.train(number)
        expected_x = expected[0] if expected[0].dim() == 2 else expected[0].permute(0, 3, 1, 2)
        found = sorted(zip(x.tolist(), y.tolist(), strict=True))
        assert all(pair in found for pair in zip(expected_x.tolist(), expected[1].tolist(), strict=True))
        assert len(found) - len(expected[1]) == len(federation.slice(number)[1])  # a fifth is held out


def test_an_operator_may_name_a_table_and_its_column(tmp_path):
    as_csv(tmp_path / "ill.csv", None)
    options = {"data": str(tmp_path / "ill.csv"), "target": "found", "client_column": "town"}
    app, _ = init(tmp_path / "app", {**options, "model": "mlp(4)"}, {"sites": ["a"]})
    assert (app.shape, app.labels) == ((2,), ("no", "yes"))
    assert "['age', 'height']" in (tmp_path / "app" / "site" / "data.py").read_text()


def test_a_run_on_objects_of_python_is_deployed_with_shape_and_labels(tmp_path):
    sites = [(torch.randn(10, 3), torch.arange(10) % 2) for _ in range(2)]
    ud.run("fedprox", ud.Federation.from_clients(sites), model="mlp(4)", rounds=1, out=tmp_path / "chosen")
    settings = settings_of(str(tmp_path / "chosen"))
    with pytest.raises(BadRequest, match="--shape 1,28,28 --labels"):
        init(tmp_path / "app", settings, {"sites": ["a"]})
    app, _ = init(tmp_path / "app", settings, {"sites": ["a"], "shape": [3], "labels": ["no", "yes"]})
    assert app.parts is not None
    assert app.parts[0].startswith("objective.fedprox")


def test_without_known_data_the_template_says_that_the_moments_are_unknown(tmp_path):
    options = {"sites": ["a"], "shape": [4], "labels": ["x", "y"]}
    init(tmp_path / "app", {"method": "fedavg", "model": "mlp(4)"}, options)
    text = (tmp_path / "app" / "site" / "data.py").read_text()
    assert "# unknown here: agree on them with all sites" in text
    assert "MEAN = (0.0,)" in text


def test_bytes_are_scaled_and_columns_standardised_by_hand():
    assert standardised(np.array([[[0, 255]]], dtype=np.uint8), (0.5,), (0.25,)).tolist() == [[[[-2.0, 2.0]]]]
    assert standardised(np.array([[1.0, 10.0]]), (0.0, 4.0), (2.0, 3.0)).tolist() == [[0.5, 2.0]]
    with pytest.raises(BadRequest, match=r"samples of shape \(3,\) do not fit 2 means and 2 deviations"):
        standardised(np.zeros((1, 3)), (0.0, 0.0), (1.0, 1.0))


@pytest.fixture
def images(tmp_path):
    from PIL import Image

    for split, name, value in (("train", "dog", 255), ("train", "cat", 0), ("test", "dog", 51)):
        (tmp_path / split / name).mkdir(parents=True)
        Image.new("L", (6, 6), value).save(tmp_path / split / name / "1.png")
    return tmp_path


def test_an_image_folder_is_resized_and_numbered_as_the_labels(images):
    x, y, x_test, y_test = image_folder(images, ["dog", "cat"], (3, 4, 4), (0.5,) * 3, (0.5,) * 3)
    assert tuple(x.shape) == (2, 3, 4, 4)
    assert dict(zip(y.tolist(), x[:, 0, 0, 0].tolist(), strict=True)) == {0: 1.0, 1: -1.0}
    assert (y_test.tolist(), round(float(x_test[0, 0, 0, 0]), 5)) == ([0], -0.6)
    assert len(image_folder(images / "train", ["dog", "cat"], (1, 4, 4), (0.5,), (0.5,))) == 2


def test_an_image_folder_that_does_not_fit_is_refused(images):
    with pytest.raises(BadRequest, match="has the class 'cat', the deployment's are dog, bird; rename it"):
        image_folder(images, ["dog", "bird"], (1, 4, 4), (0.5,), (0.5,))
    with pytest.raises(BadRequest, match="there is no folder"):
        image_folder(images / "none", ["dog"], (1, 4, 4), (0.5,), (0.5,))
    with pytest.raises(BadRequest, match="square images only"):
        image_folder(images, ["dog", "cat"], (1, 4, 6), (0.5,), (0.5,))


def test_a_table_is_read_by_its_columns(tmp_path):
    (tmp_path / "t.csv").write_text("age,label,size\n30,ill,5\n50,well,9\n")
    x, y = table(tmp_path / "t.csv", "label", ["well", "ill"], (40.0, 5.0), (10.0, 2.0))
    assert (x.tolist(), y.tolist()) == ([[-1.0, 0.0], [1.0, 2.0]], [1, 0])
    x, _ = table(tmp_path / "t.csv", "label", ["well", "ill"], (5.0,), (2.0,), features=["size"])
    assert x.tolist() == [[0.0], [2.0]]
    with pytest.raises(BadRequest, match="labl"):
        table(tmp_path / "t.csv", "labl", ["well", "ill"], (0.0,), (1.0,))
    (tmp_path / "t.csv").write_text("age,label\nold,ill\n")
    with pytest.raises(BadRequest, match=r"line 2: age is no number; fill or remove it"):
        table(tmp_path / "t.csv", "label", ["well", "ill"], (0.0,), (1.0,))
