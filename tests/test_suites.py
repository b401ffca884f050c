"""Audit suites: the packaged ones, overrides of their rows, and the choice of rows."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from attncem.base.types import ConfigError
from attncem.config.loading.load import dump_config, load, packaged_names
from attncem.config.loading.overrides import parse_cli_overrides
from attncem.config.options.attacks import (
    ClassMeanOptions,
    DecoderOptions,
    FamilyOptions,
    FlowOptions,
    FlowPriorOptions,
    GanOptions,
    GreyOptions,
    ImagePriorOptions,
    InformedOptions,
    MeanImageOptions,
    NearestNeighbourOptions,
    NoiseGuessOptions,
    OptimisationOptions,
    PublishedOptions,
    RewhiteningOptions,
    RidgeOptions,
    SubstituteOptions,
)
from attncem.config.options.certificates import (
    AccountantOptions,
    BeyondLabelOptions,
    CodeEntropyOptions,
    EvidenceOptions,
    FanoOptions,
    FisherOptions,
    LeakageOptions,
    LocalPrivacyOptions,
    QuantisationOptions,
    ShannonOptions,
    SurrogateLeakageOptions,
)
from attncem.config.options.probes import (
    AttributeLeakageOptions,
    ByPictureOptions,
    ClusteringOptions,
    LabelLeakageOptions,
    MembershipOptions,
    ReidentificationOptions,
)
from attncem.config.options.suites import (
    LoadedSuite,
    Suite,
    load_suite,
    override_tree,
    packaged_suites,
    row_file,
    select_rows,
)

STRENGTHS = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
DECODER = {"tolerance": 0.02, "weight_decay": 1e-4, "ema_decay": 0.99, "anneal": 0.5, "validation_fraction": 0.1}
STRONG = {"size": "strong", "epochs": 50.0, "max_epochs": 200.0, "batch_size": 64, "lr": 3e-4, **DECODER}
WHITE_BOX = {
    **{"start": "decoder", "decoder_epochs": 28.0, "restarts": 1, "draws": 4, "tuning_images": 64, "images": 1000},
    **{"steps": 100, "max_steps": 400, "tolerance": 0.02, "lr": 0.03},
    **{"smoothness": (0.0, 1.0, 3.0, 10.0, 30.0), "pulls": (0.0, 1.0, 3.0, 10.0)},
}
SMALL = {"size": "small", "loss": "mse", "batch_size": 256, "least_steps": 225, "lr": 8e-3, **DECODER}
GLOBAL = {
    **DECODER,
    **{"size": "global", "loss": "mse", "epochs": 25.0, "max_epochs": 100.0, "batch_size": 256, "least_steps": 75},
    **{"mirror": True, "lr": 1.5e-3, "weight_decay": 1e-3, "precision": "bf16-mixed"},
}
QUICK = {
    "grey": GreyOptions(),
    "mean image": MeanImageOptions(),
    "class mean": ClassMeanOptions(),
    "nearest neighbour": NearestNeighbourOptions(num_releases=4),
    "ridge": RidgeOptions(strengths=STRENGTHS, num_releases=2),
    "decoder small": DecoderOptions(epochs=28, max_epochs=56, **SMALL),
    "re-identification": ReidentificationOptions(candidates=1000, num_releases=8),
    "label leakage": LabelLeakageOptions(labels=(1, 4, 16, 40), draws=5),
}
STANDARD = {
    **QUICK,
    "decoder global": DecoderOptions(**GLOBAL),
    **{f"ridge x{releases}": RidgeOptions(releases=releases) for releases in (4, 16, 64, 256)},
    "ridge x16 jitter": RidgeOptions(releases=16, jitter=1, num_releases=1),
    "decoder global x16": DecoderOptions(releases=16, **GLOBAL),
    "decoder global x256": DecoderOptions(releases=256, **GLOBAL),
    "white box": OptimisationOptions(**WHITE_BOX),
}
LEARNED = [row for row, options in STANDARD.items() if isinstance(options, DecoderOptions)]
"""Rows of the method `decoder`."""
OTHERS = [
    row for row, options in STANDARD.items() if options.name not in ("decoder", "optimisation") and row != "ridge"
]
"""What is left without two methods, and without the row that is called like its method."""
FLOW_PRIOR = {
    **{"epochs": 5, "max_epochs": 20, "tolerance": 0.02, "lr": 3e-3, "anneal": 0.5, "batch_size": 64},
    **{"width": 32, "blocks": 1, "samples": 8, "times": 10, "pulls": (0.3, 1.0, 3.0), "corrections": (0, 1)},
    **{"steps": 25, "max_steps": 50, "tuning_images": 32},
}
FULL = {
    **STANDARD,
    "baseline's decoder": PublishedOptions(epochs=50, batch_size=256, lr=1e-3, final_lr=1e-5, weight_decay=1e-4),
    "decoder published": DecoderOptions(
        size="published", loss="mse", epochs=12, max_epochs=48, batch_size=64, lr=1e-3, **DECODER
    ),
    "decoder strong": DecoderOptions(loss="mse", **STRONG),
    "decoder strong ssim": DecoderOptions(loss="mse_ssim", **STRONG),
    "baseline's gan": GanOptions(
        **{
            "epochs": 10,
            "decoder_epochs": 50,
            "decoder_batch_size": 256,
            "batch_size": 128,
            "lr": 5e-4,
            "critic_lr": 5e-3,
        },
        **{"critic_steps": 10, "gradient_penalty": 10.0, "mse_weight": 1500.0},
    ),
    "decoder family": FamilyOptions(
        **{"epochs": 10, "max_epochs": 40, "tolerance": 0.02, "lr": 1.5e-3, "anneal": 0.5, "weight_decay": 1e-3},
        **{"widths": (32, 64, 96), "fractions": (0.01, 0.1, 0.3, 1.0)},
        **{"batch_size": 256, "least_steps": 150, "precision": "bf16-mixed"},
    ),
    "decoder informed": InformedOptions(
        **{"epochs": 25, "max_epochs": 100, "tolerance": 0.02, "lr": 1.5e-3, "anneal": 0.5, "weight_decay": 1e-3},
        **{"picture": 0.01, "mirror": True, "batch_size": 256, "least_steps": 75, "precision": "bf16-mixed"},
    ),
    "flow": FlowOptions(
        **{"epochs": 10, "max_epochs": 40, "tolerance": 0.02, "lr": 1.5e-3, "anneal": 0.5, "weight_decay": 1e-3},
        **{"width": 64, "blocks": 2, "samples": 4, "steps": 10},
        **{"batch_size": 256, "least_steps": 150, "precision": "bf16-mixed"},
    ),
    "flow prior": FlowPriorOptions(by="guidance", images=200, **FLOW_PRIOR),
    "flow prior search": FlowPriorOptions(
        by="latent", images=50, **FLOW_PRIOR | {"samples": 2, "times": 4, "pulls": (1.0,), "tuning_images": 16}
    ),
    "white box restarts": OptimisationOptions(**WHITE_BOX | {"restarts": 3}),
    "rewhitening": RewhiteningOptions(then="ridge", powers=(0.0, 0.5, 1.0), shrinkage=1e-4),
    "rewhitening decoder": RewhiteningOptions(then="decoder", powers=(1.0,), shrinkage=1e-4, decoder_epochs=28),
    "image prior": ImagePriorOptions(
        steps=100, max_steps=800, tolerance=0.02, lr=0.02, width=32, draws=4, tuning_images=25, images=100
    ),
    "substitute": SubstituteOptions(
        steps=2000, batch_size=64, lr=1e-3, width=32, match=1.0, critic=0.1, cycle=0.3, server=0.3
    ),
    "noise guess": NoiseGuessOptions(seeds=2**20, images=100),
    "re-identification by picture": ByPictureOptions(candidates=1000),
    "clustering": ClusteringOptions(components=20, starts=10, fitted=10_000),
    "attribute leakage": AttributeLeakageOptions(),
    "membership": MembershipOptions(pairs=4000),
}
CERTIFICATES = {
    "mean image": MeanImageOptions(),
    "ridge": RidgeOptions(strengths=STRENGTHS, num_releases=2),
    "re-identification": ReidentificationOptions(candidates=1000, num_releases=8),
    "leakage": LeakageOptions(cells="best", axes="best", clusters=4),
    "leakage beyond the label": BeyondLabelOptions(cells="best", axes="best", clusters=4),
    "leakage evidence": EvidenceOptions(candidates=None),
    "leakage by the surrogate": SurrogateLeakageOptions(),
    "quantisation": QuantisationOptions(runtimes=1),
    "entropy of the code": CodeEntropyOptions(),
    "accountant": AccountantOptions(releases=(1, 4, 16, 64, 256), budget=None),
    "Shannon's bound": ShannonOptions(components=512),
    "Fisher information": FisherOptions(images=300, probes=16, components=256),
    "Fano's bound": FanoOptions(candidates=(1000, 10**6, 10**9)),
    "local privacy": LocalPrivacyOptions(),
}
PACKAGED = {
    "certificates": (
        2,
        CERTIFICATES,
        "bounds on every attack, with ridge and a floor for comparison: seconds on a CPU for the embedded images",
    ),
    "quick": (
        3,
        QUICK,
        "floors, ridge, a small decoder, re-identification and labels: a minute on a CPU for the embedded images",
    ),
    "standard": (
        6,
        STANDARD,
        "quick, a decoder that sees the whole feature, rows with several releases, and white-box optimisation",
    ),
    "full": (
        7,
        FULL,
        "standard, the baseline's decoder as published, decoders of other sizes and aims, a flow, a prior of "
        "the attacker's images, a GAN, a substitute client, re-whitening and probes: for a GPU",
    ),
}
ODD = {"name": "odd", "version": 1, "meaning": "", "rows": {"v1.5, k=2": {"name": "decoder"}, "rows": {"name": "grey"}}}


def message(*arguments, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load_suite(*arguments, **options)
    return str(caught.value)


# The packaged suites


@pytest.mark.parametrize("name", PACKAGED)
def test_the_packaged_suites_are_these(name):
    version, rows, meaning = PACKAGED[name]
    suite = load_suite(name).suite
    assert suite == Suite(name=name, version=version, meaning=meaning, rows=rows)
    assert list(suite.rows) == list(rows)
    assert packaged_suites()[name] == suite


def test_they_come_from_the_smallest():
    assert list(packaged_suites()) == ["quick", "certificates", "standard", "full"]


def test_each_file_says_how_to_use_it():
    import attncem

    folder = Path(attncem.__file__).parent / "config/packaged/suites"
    assert set(packaged_names(folder)) == set(PACKAGED)
    for name, (_, _, meaning) in PACKAGED.items():
        first, second = (folder / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[:2]
        assert first == f"# attncem audit RUN --suite {name}"
        assert second.lower() == f"# {meaning.lower()}."


# Sources


def test_sources(tmp_path):
    suite = load_suite("quick").suite
    (tmp_path / "mine.yaml").write_text(dump_config(suite), encoding="utf-8")
    assert load_suite(suite) == load_suite(tmp_path / "mine.yaml") == load_suite(str(tmp_path / "mine.yaml"))
    assert load_suite(suite.model_dump()) == LoadedSuite(suite, [])
    assert load(Suite, "quick").config == suite


def test_a_suite_may_extend_a_packaged_one():
    own = {"extends": "quick", "name": "own", "rows": {"ridge": {"num_releases": 9}, "grey again": {"name": "grey"}}}
    rows = load_suite(own).suite.rows
    assert list(rows) == [*QUICK, "grey again"]
    assert rows["ridge"] == RidgeOptions(num_releases=9)


def test_unknown_sources():
    text = message("standad")
    assert text.startswith(
        "standad: no packaged suite of this name (one of: certificates, full, quick, standard); did you mean stan"
    )
    assert "no packaged suite" in message("demo")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({}, "rows: there must be at least one"),
        (
            {"a b": {"name": "grey"}, "A-B": {"name": "grey"}},
            "rows: 'a b' and 'A-B' would have the same file, a-b",
        ),
        ({"—": {"name": "grey"}}, "rows: the name '—' has no letter or digit"),
        ({"grey": {"name": "gray"}}, "rows.grey.name=gray: must be one of: grey, mean_image"),
        ({"grey": {}}, "rows.grey.name: is missing; must be one of: grey"),
        ({"a": {"name": "decoder", "epochs": 5, "max_epochs": 2}}, "rows.a: max_epochs=2 is below the first budget"),
        ({"a": {"name": "grey", "size": "small"}}, "rows.a.size: is an option of rows.a.name=decoder, not of rows"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be(rows, expected):
    assert expected in message({"name": "own", "version": 1, "meaning": "", "rows": rows})


def test_a_name_that_is_no_file_name_is_refused():
    with pytest.raises(ValidationError):
        Suite(name="../x", version=1, meaning="", rows={"grey": GreyOptions()})


@pytest.mark.parametrize(
    ("name", "file"), [("decoder small", "decoder-small"), ("  K=2, (a_b) ", "k-2-a-b"), ("Ü", ""), ("x", "x")]
)
def test_row_file(name, file):
    assert row_file(name) == file


# Overrides


@pytest.mark.parametrize("key", ["decoder small", "decoder-small", "decoder_small", "rows.decoder small"])
def test_a_row_by_any_of_its_names(key):
    loaded = load_suite("standard", [f"{key}.epochs=5"])
    assert loaded.changed == ["decoder small.epochs=5"]
    assert loaded.suite.rows["decoder small"] == DecoderOptions(epochs=5, max_epochs=56, **SMALL)
    assert loaded.suite.rows["decoder global"] == STANDARD["decoder global"]
    assert load_suite("standard", {f"{key}.epochs": 5}) == load_suite("standard", {key: {"epochs": 5}}) == loaded


def test_a_method_stands_for_all_its_rows():
    loaded = load_suite("standard", ["decoder.epochs=5"])
    assert loaded.changed == [f"{row}.epochs=5" for row in LEARNED]
    assert len(LEARNED) >= 3
    assert list(loaded.suite.rows) == list(STANDARD)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("own", ["decoder small.epochs=7", "decoder_small={epochs: 7}"])
def test_a_rows_own_name_wins_over_its_method(own, order):
    loaded = load_suite("standard", ["decoder.epochs=5", own][::order])
    assert loaded.changed == ["decoder small.epochs=7", *(f"{row}.epochs=5" for row in LEARNED[1:])]


def test_rows_of_a_method_share_no_list():
    own = {"name": "own", "version": 1, "meaning": "", "rows": {"a": {"name": "ridge"}, "b": {"name": "ridge"}}}
    rows = load_suite(own, ["ridge.strengths=[1, 2]", "a.strengths.0=3"]).suite.rows
    assert (rows["a"].strengths, rows["b"].strengths) == ((3, 2), (1, 2))


def test_a_row_called_like_its_method_is_meant_alone():
    own = {"extends": "quick", "name": "own", "rows": {"ridge twice": {"name": "ridge"}}}
    assert load_suite(own, ["ridge.num_releases=7"]).changed == ["ridge.num_releases=7"]


def test_the_last_of_one_row_counts_however_it_is_called():
    assert load_suite("quick", ["decoder-small.epochs=7", "decoder small.epochs=6"]).suite.rows[
        "decoder small"
    ] == DecoderOptions(epochs=6, max_epochs=56, **SMALL)


def test_lists_and_changed_methods():
    assert load_suite("quick", ["ridge.strengths=[0.1,1]"]).changed == ["ridge.strengths=[0.1, 1]"]
    assert load_suite("quick", ["ridge.strengths.0=1e-5"]).suite.rows["ridge"].strengths == (1e-5, *STRENGTHS[1:])
    loaded = load_suite("quick", ["grey={name: ridge, num_releases: 3}"])
    assert loaded.suite.rows["grey"] == RidgeOptions(num_releases=3)
    assert loaded.changed[0] == "grey.name=ridge"


@pytest.mark.parametrize("overrides", [(), {}, ["decoder small.epochs=28"], {"ridge.num_releases": 2}])
def test_what_changes_nothing_is_not_told(overrides):
    assert load_suite("quick", overrides) == LoadedSuite(packaged_suites()["quick"], [])


@pytest.mark.parametrize(
    ("source", "overrides"),
    [
        ("full", ["decoder.lr=1e-05", "ridge.strengths=[0.1]", "decoder strong.loss=mse_ssim", "decoder.tolerance=.1"]),
        ("quick", ["grey.name=decoder", "grey.epochs=3"]),
        (ODD, ["v1.5, k=2.epochs=3", "v1-5-k-2.lr=1e-7", "rows.name=ridge"]),
    ],
)
def test_what_changed_leads_to_the_same_again(source, overrides):
    loaded = load_suite(source, overrides)
    assert loaded.changed
    assert load_suite(source, loaded.changed) == loaded


def test_overrides_do_not_change_the_source():
    suite = packaged_suites()["quick"]
    assert load_suite(suite, ["decoder.epochs=5"]).suite != suite
    assert suite == packaged_suites()["quick"]


LISTED = (
    "Rows: grey, mean image, class mean, nearest neighbour, ridge, decoder small, re-identification, label leakage; "
    "methods: grey, mean_image"
)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("decodr.epochs=5", f"decodr.epochs: unknown key; did you mean decoder.epochs? {LISTED}"),
        ("decoder smal.epochs=5", "did you mean decoder small.epochs?"),
        ("epochs=5", "epochs: unknown key; did you mean decoder small.epochs?"),
        ("training.epochs=5", "training.epochs: unknown key; did you mean decoder small.epochs?"),
        ("decoder published.epochs=5", LISTED),
        ("ridge.num_release=5", "rows.ridge.num_release: unknown key; did you mean rows.ridge.num_releases? Allowed"),
        ("decoder.epochs=57", "rows.decoder small: max_epochs=56 is below the first budget, epochs=57"),
        ("decoder.epochs=x", "rows.decoder small.epochs=x: must be a number > 0"),
        ("decoder=5", "rows.decoder small=5: must be a mapping with a name"),
        ("decoder", "decoder: not an override; expected key=value, e.g. decoder."),
    ],
)
def test_overrides_that_cannot_be(override, expected):
    assert expected in message("quick", [override])


def test_every_problem_names_its_row():
    text = message("standard", ["decoder.epochs=-1"])
    assert text.startswith(f"{len(LEARNED)} problems in the suite:\n  rows.decoder small.epochs=-1: must")
    assert all(f"rows.{row}.epochs=-1" in text for row in LEARNED)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["decoder.epochs=5"], ["decoder.epochs=5"]),
        (["--decoder.epochs", "5", "--ridge.strengths=[1]"], ["decoder.epochs=5", "ridge.strengths=[1]"]),
        (["decoder small.epochs=5"], ["decoder small.epochs=5"]),
        (["--decoder small.epochs", "5", "--decoder-small.lr", "1"], ["decoder small.epochs=5", "decoder-small.lr=1"]),
    ],
)
def test_the_command_line(words, expected):
    suite = packaged_suites()["standard"]
    found = parse_cli_overrides(words, override_tree(suite))
    assert found == expected
    assert load_suite(suite, found).changed


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--decodr.epochs", "5"], "did you mean decoder.epochs? Rows: grey"),
        (["decoder.epochs"], "did you mean --decoder.epochs?"),
        (["decoder smal.epochs=5"], "expected key=value"),
        (["--decoder.epochs"], "needs a value"),
    ],
)
def test_command_line_errors(words, expected):
    with pytest.raises(ConfigError) as caught:
        parse_cli_overrides(words, override_tree(packaged_suites()["standard"]))
    assert expected in str(caught.value)


# The choice of rows


@pytest.mark.parametrize(
    ("only", "skip", "expected"),
    [
        ((), (), list(STANDARD)),
        (["decoder", "grey"], (), ["grey", *LEARNED]),
        (["decoder_global", "mean-image"], (), ["mean image", "decoder global"]),
        (["decoder"], ["decoder small"], LEARNED[1:]),
        (
            (),
            ["decoder", "optimisation", "ridge"],
            OTHERS,
        ),
    ],
)
def test_select_rows(only, skip, expected):
    assert select_rows(packaged_suites()["standard"], only, skip) == expected


@pytest.mark.parametrize(
    ("only", "skip", "expected"),
    [
        (["decodr"], (), "only=decodr: no row or method of this name; did you mean decoder? Rows: grey, mean image"),
        ((), ["zzz"], f"skip=zzz: no row or method of this name. {LISTED}"),
        (["grey"], ["grey"], "only=grey with skip=grey leaves no row of the suite quick"),
    ],
)
def test_rows_that_cannot_be_selected(only, skip, expected):
    with pytest.raises(ConfigError) as caught:
        select_rows(packaged_suites()["quick"], only, skip)
    assert expected in str(caught.value)
