"""Attributes: groups of classes, a column beside the images, and the probe that looks for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from attncem.base.progress import silent
from attncem.base.types import ConfigError, DataError
from attncem.cli.main import main
from attncem.config.loading.load import load
from attncem.config.options.data import DataOptions
from attncem.config.options.probes import AttributeLeakageOptions
from attncem.config.options.suites import Suite, load_suite
from attncem.config.threats import THREATS
from attncem.data.attributes import attributes_hash, read_attributes
from attncem.data.groups import GROUPS, group_of_each
from attncem.data.readers import read_dataset
from attncem.data.specs import DATASETS
from attncem.judging.auditing import Case, audit, measure
from attncem.judging.opening import open_encoder
from attncem.judging.probes.label_leakage import answers
from attncem.records.audit import Row
from attncem.reporting.runs.tables import other_numbers
from probing import Constant, subject

MINI = DataOptions(name="fashion_mnist_mini")
COUNTS = (5000, 1000)


# groups


@pytest.mark.parametrize("name", GROUPS)
def test_known_groups_divide_the_classes(name: str) -> None:
    classes = DATASETS[name].class_names
    members = [one for group in GROUPS[name].values() for one in group]
    assert sorted(members) == sorted(classes)
    found = group_of_each(GROUPS[name], classes)
    assert set(found.tolist()) == set(range(len(GROUPS[name])))


def test_cifar100_has_twenty_superclasses_of_five() -> None:
    assert [len(group) for group in GROUPS["cifar100"].values()] == [5] * 20
    assert "maple_tree" in GROUPS["cifar100"]["trees"]


def test_classes_outside_of_every_group_have_none() -> None:
    assert group_of_each({"a": ["x"], "b": ["z"]}, ["x", "y", "z"]).tolist() == [0, -1, 1]
    with pytest.raises(ConfigError, match=r"groups.a: trukc is not a class; did you mean truck\?"):
        group_of_each({"a": ["trukc"]}, ["ship", "truck"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": {"a": ("x",)}}, "two or more"),
        ({"groups": {"a": ("x",), "b": ()}}, "each with a class"),
        ({"groups": {"a": ("x", "y"), "b": ("x",)}}, "more than once: x"),
        ({"groups": {"a": ("x",), "b": ("y",)}, "attribute": "c"}, "not both"),
        ({"file": "a.csv"}, "file needs attribute"),
    ],
)
def test_odd_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AttributeLeakageOptions(**options)


def test_groups_can_be_given_behind_the_command() -> None:
    words = ["attribute_leakage.groups={even: [Bag, Coat], odd: [Dress]}"]
    row = load_suite("full", words).suite.rows["attribute leakage"]
    assert isinstance(row, AttributeLeakageOptions)
    assert row.groups == {"even": ("Bag", "Coat"), "odd": ("Dress",)}


# the probe


def probed(encoder: nn.Module, **options: Any) -> Row:
    return measure(Case(subject(encoder), THREATS["train"]), "row", AttributeLeakageOptions(**options), seed=0).row


class Pale(nn.Module):
    """Tells one thing: whether the class is the first."""

    def forward(self, x: Tensor) -> Tensor:
        return (x[:, :, :1, :1] < 0.05).float().expand(-1, 4, 3, 3)


def test_a_rare_value_is_found_and_stands_beside_chance() -> None:
    groups = {"first": ("class 0",), "others": ("class 1", "class 2", "class 3")}
    row = probed(Pale(), groups=groups)
    assert row.chance == {"attribute_accuracy": 0.75, "attribute_balanced": 0.5}
    assert [score.mean for score in row.scores.values()] == [1.0, 1.0]
    said = other_numbers(row)
    assert said[0].startswith("attribute predicted correctly: 100")
    assert "chance 75.0 %" in said[0]
    other = probed(Pale(), groups={"a": ("class 1",), "b": ("class 2",), "c": ("class 3",)})
    assert other.num_images == 90, "images of the first class take no part"
    assert other.scores["attribute_balanced"].mean == pytest.approx(1 / 3)


def test_nothing_is_known_of_other_data_sets() -> None:
    row = probed(Constant())
    assert row.outcome == "not_applicable"
    assert "no groups are known for the classes of pictures" in row.reason


def test_an_unknown_class_costs_the_row() -> None:
    row = probed(Constant(), groups={"a": ("class 9",), "b": ("class 1",)})
    assert row.outcome == "failed"
    assert "class 9 is not a class" in row.reason


def test_the_even_answer_does_not_drown_rare_values() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.rand(1000, generator=generator) < 0.05).long()
    features = torch.randn(1000, 3, generator=generator).double()
    features[:, 0] += 1.5 * labels
    plain, even = answers(features, labels, features.float())
    recalls = [[float((said == labels)[labels == value].double().mean()) for value in (0, 1)] for said in (plain, even)]
    assert sum(recalls[1]) > sum(recalls[0]) + 0.2
    assert float((plain == labels).double().mean()) > float((even == labels).double().mean())


# the column


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_table_of_places(tmp_path: Path) -> None:
    lines = ["part,index,glasses,age", "train,4,yes,3", "test,999,no,4", "train,0, no ,", "test,1,,5"]
    file = write(tmp_path / "table.csv", lines)
    train, test = read_attributes(MINI, "glasses", COUNTS, str(file))
    assert {int(index): int(train[index]) for index in np.flatnonzero(train >= 0)} == {0: 0, 4: 1}
    assert {int(index): int(test[index]) for index in np.flatnonzero(test >= 0)} == {999: 0}
    assert (train.shape, test.shape) == ((5000,), (1000,))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["part,index,glases", "train,0,yes"], "has no attribute glasses; did you mean glases?"),
        (["index,glasses", "0,yes"], "must name the columns part, index"),
        (["part,index,glasses", "train,0,yes", "train,1,yes"], "has 1 different values"),
        (["part,index,glasses", *(f"train,{n},{n}" for n in range(200))], "has 200 different values"),
        (["part,index,glasses", "train,0,yes", "train,5000,no"], "line 3: 'train 5000' is not an image"),
        (["part,index,glasses", "train,0,yes", "train,0,no"], "a duplicate"),
        (["part,index,glasses", "train,-1,yes", "train,0,no"], "line 2: 'train -1' is not an image"),
        (["part,index,glasses", "train"], "has 0 different values"),
        ([], "must name the columns"),
    ],
)
def test_damaged_tables_are_named(tmp_path: Path, lines: list[str], message: str) -> None:
    file = write(tmp_path / "table.csv", lines)
    with pytest.raises(DataError) as error:
        read_attributes(MINI, "glasses", COUNTS, str(file))
    assert message in str(error.value)
    assert str(file) in str(error.value)


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.csv"):
        read_attributes(MINI, "glasses", COUNTS, str(tmp_path / "nothing.csv"))
    with pytest.raises(DataError, match="file=FILE"):
        read_attributes(DataOptions(name="cifar10", root=str(tmp_path)), "glasses", COUNTS)
    assert attributes_hash(MINI, str(tmp_path / "nothing.csv")) == ""


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Two people, with a frame around the picture or without: the attribute."""
    rng, lines = np.random.default_rng(0), ["file,frame"]
    for part, count in (("train", 60), ("test", 20)):
        for person in ("ann", "bob"):
            folder = tmp_path / "people" / part / person
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(60, 200, (12, 12), dtype=np.uint8)
                framed = bool(rng.integers(2))
                if framed:
                    pixels[0] = 255
                Image.fromarray(pixels).save(folder / f"{number:03}.png")
                lines.append(f"{part}/{person}/{number:03}.png,{'yes' if framed else 'no'}")
    write(tmp_path / "people" / "attributes.csv", lines)
    return tmp_path / "people"


def test_a_table_of_files_lies_beside_the_classes(people: Path) -> None:
    options = DataOptions(name="image_folder", root=str(people))
    raw = read_dataset("image_folder", people)
    train, test = read_attributes(options, "frame", (len(raw.train_images), len(raw.test_images)))
    framed = (raw.train_images[:, 0, 0] == 255).all(1), (raw.test_images[:, 0, 0] == 255).all(1)
    assert (train == framed[0]).all()
    assert (test == framed[1]).all()


class Hidden(nn.Module):
    """Noise from the pixels, and the frame in one channel."""

    def forward(self, x: Tensor) -> Tensor:
        frame = (x[:, :, :1].amin((1, 2, 3)) > 0.99).float().view(-1, 1, 1, 1).expand(-1, 1, 3, 3)
        return torch.cat([torch.sin(1000 * x[:, :, ::4, ::4]), frame], 1)


def column_row(people: Path, encoder: nn.Module, **options: Any) -> Row:
    channel = [{"name": "gaussian", "noise_std": 0.1}]
    data = {"name": "image_folder", "root": str(people), "images_per_class": options.pop("images_per_class", None)}
    opened = open_encoder(encoder, data=data, channel=channel, device="cpu")
    threat = THREATS[options.pop("threat", "train")]
    return measure(Case(opened, threat, **options), "row", AttributeLeakageOptions(attribute="frame"), seed=0).row


@pytest.mark.parametrize(
    "options", [{}, {"on": "validation"}, {"threat": "published_infer"}], ids=["test", "validation", "infer"]
)
def test_a_planted_attribute_is_found_in_one_channel(people: Path, options: dict[str, Any]) -> None:
    row = column_row(people, Hidden(), **options)
    assert row.outcome == "ok", row.reason
    assert row.scores["attribute_accuracy"].mean == 1.0
    assert row.scores["attribute_balanced"].mean == 1.0
    assert row.num_images == {"validation": 12}.get(options.get("on", ""), 4 if options else 40)


def test_a_subset_of_the_images_keeps_their_attributes(people: Path) -> None:
    row = column_row(people, Hidden(), images_per_class=40)
    assert row.outcome == "ok", row.reason
    assert (row.scores["attribute_accuracy"].mean, row.num_images) == (1.0, 40)


def test_a_constant_tells_no_attribute(people: Path) -> None:
    row = column_row(people, Constant())
    for name, chance in row.chance.items():
        score = row.scores[name]
        assert abs(score.mean - chance) <= 1.5 * (score.high - score.low) + 1e-9


def suite_of(options: dict[str, Any]) -> Suite:
    rows = {"attribute": {"name": "attribute_leakage", **options}}
    return load(Suite, {"name": "one", "version": 1, "meaning": "for a test", "rows": rows}).config


def test_another_table_is_another_audit(small_run: Callable[..., Path], tmp_path: Path) -> None:
    names = []
    for odd in (2, 3):
        lines = [f"{part},{n},{n % odd}" for part, count in (("train", 5000), ("test", 1000)) for n in range(count)]
        file = write(tmp_path / "table.csv", ["part,index,kind", *lines])
        options = {"attribute": "kind", "file": str(file)}
        result = audit(small_run("demo-none"), suite_of(options), out=tmp_path / "audits", progress=silent)
        names.append(result.plan.id)
        row = result.row("attribute")
        assert row.outcome == "ok", row.reason
        assert row.chance["attribute_balanced"] == pytest.approx(1 / odd)
        score = row.scores["attribute_balanced"]
        assert abs(score.mean - 1 / odd) < 1.5 * (score.high - score.low), "the place in the file is not in the image"
    assert names[0] != names[1]


def test_the_row_of_full_finds_the_groups_of_the_demo(
    small_run: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--suite", "full", "--only", "attribute_leakage", "--out", str(tmp_path), "--device", "cpu"]
    assert main(["audit", str(small_run("demo-none")), *words]) == 0
    assert "attribute predicted correctly" in capsys.readouterr().out
