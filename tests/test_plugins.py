"""Plugins: what a named file adds, what is refused, what files record, and what works without the file."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from attncem.base import plugins
from attncem.base.plugins import Plugin, load_plugin, load_same, named_plugins
from attncem.base.progress import silent
from attncem.base.types import ConfigError, NotApplicable, RunError
from attncem.base.working import Workers
from attncem.campaigns.engines import ray, slurm
from attncem.cli.main import main
from attncem.config import plugins as registration
from attncem.config.loading.describe import format_help
from attncem.config.loading.load import dump_config, load_config
from attncem.config.options.run import RunConfig
from attncem.config.options.suites import load_suite
from attncem.judging.auditing import audit
from attncem.judging.certificates.bits import nats_of_codes
from attncem.judging.certificates.passage import noise_of
from attncem.judging.opening import open_run
from attncem.models.channels import CHANNELS, QuantiseChannel, build_channel
from attncem.models.networks import ARCHITECTURES
from attncem.records.runs import RunDirectory
from attncem.reporting import privacy_card, report
from attncem.testing import ContractError, check_attack, check_channel, check_network, check_surrogate
from attncem.training.build import check
from attncem.training.surrogates import SURROGATES
from attncem.training.train import train
from pages import STEP, read_page

PAGE = {step["new"]: step["code"] for step in STEP.finditer(read_page("plugins.md"))}
"""The files of docs/plugins.md by name."""
LIGHT = '''
from typing import Literal
from attncem.config.options.surrogate_base import SurrogateOptions
from attncem.config.plugins import register

class Options(SurrogateOptions):
    """A surrogate that needs no torch."""
    name: Literal["light"] = "light"
    depth: int = 3
    """How deep."""

@register("surrogate", Options)
class Light: ...
'''


@contextmanager
def tables_as_before() -> Iterator[None]:
    """Take everything out of the tables that is added inside."""
    before = [(table, dict(table)) for table, *_ in registration._tables.values()]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that a plugin adds outlives its test."""
    for name in ("_additions", "_loaded"):
        monkeypatch.setattr(plugins, name, {})
    monkeypatch.setattr(plugins, "_installed", [])
    with tables_as_before():
        yield


@pytest.fixture
def light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin without torch, in a process that has not imported the tables."""
    monkeypatch.setattr(registration, "_tables", {})
    return written(tmp_path, "light.py", LIGHT)


def written(folder: Path, name: str, text: str | None = None) -> Path:
    file = folder / name
    file.write_text(PAGE[name] if text is None else text, encoding="utf-8")
    return file


def test_a_named_file_adds_options_help_hints_and_a_class(tmp_path: Path) -> None:
    plain = json.dumps(RunConfig.model_json_schema())
    load_plugin(written(tmp_path, "deviation.py"))
    config = load_config("demo", ["surrogate.name=deviation", "surrogate.scale=2"]).config
    assert config.surrogate.model_dump() == {"name": "deviation", "scale": 2.0}
    file = written(tmp_path, "mine.yaml", dump_config(config))
    assert load_config(file).config == config
    assert load_config({"extends": str(file), "surrogate": {"scale": 3}}).config.surrogate.scale == 3  # type: ignore[union-attr]
    assert "surrogate.scale=1" in format_help(section="surrogate.deviation")
    assert "DeviationOptions" in json.dumps(RunConfig.model_json_schema()) and "DeviationOptions" not in plain
    with pytest.raises(ConfigError, match=r"surrogate\.scal: unknown key; did you mean surrogate\.scale\?"):
        load_config("demo", ["surrogate.name=deviation", "surrogate.scal=2"])
    with pytest.raises(ConfigError, match=r"surrogate\.scale=-1: must be a number > 0"):
        load_config("demo", ["surrogate.name=deviation", "surrogate.scale=-1"])
    with pytest.raises(ConfigError, match=r"hybrid, deviation; did you mean deviation\?"):
        load_config("demo", ["surrogate.name=deviaton"])
    with pytest.raises(ConfigError, match=r"surrogate.name=deviation is measured in units of channel.noise_std"):
        load_config("demo", ["surrogate.name=deviation", "channel.noise_std=0"])
    assert SURROGATES["deviation"].options_type.__name__ == "DeviationOptions"


def test_every_kind_has_its_place(tmp_path: Path) -> None:
    load_plugin(written(tmp_path, "more.py"))
    load_plugin(written(tmp_path, "blend.py"))
    keys = {"model.name": "two_cuts", "model.cut": "second", "channel": [{"name": "uniform", "width": 0.3}]}
    config = load_config("demo", keys).config
    assert config.noise_std == pytest.approx(0.3 / 3**0.5)
    assert build_channel(config.channel)(torch.zeros(2, 5)).abs().max() <= 0.3
    rows = {"name": "own", "version": 1, "meaning": "", "rows": {"one": {"name": "blend", "nearest": 2}}}
    assert load_suite(rows, ["one.nearest=5"]).suite.rows["one"].nearest == 5  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"must be one of: grey, .*blend; did you mean blend"):
        load_suite({**rows, "rows": {"one": {"name": "blendd"}}})


BAD = {
    "a built-in name": (LIGHT.replace('"light"', '"gated"'), "surrogate gated: attncem has one of this name"),
    "a probe's name": (
        PAGE["blend.py"].replace('"blend"', '"membership"'),
        "attack membership: attncem has one of this name",
    ),
    "another base": (PAGE["deviation.py"].replace("(Surrogate)", ""), "Deviation must be a subclass of Surrogate"),
    "no name": (LIGHT.replace('name: Literal["light"] = "light"', ""), 'Options needs its name: name: Literal["mine"]'),
    "other options": (
        LIGHT.replace("(SurrogateOptions)", ""),
        "needs an options class, a subclass of SurrogateOptions",
    ),
    "an odd name": (LIGHT.replace('"light"', '"Light one"'), "its name 'Light one' must match"),
    "an unknown kind": (
        LIGHT.replace('register("surrogate"', 'register("penality"'),
        "'penality' is unknown; allowed:",
    ),
    "nothing": ("x = 1", "registers nothing"),
    "an error": ("x = 1\n1 / 0\n", "plugin bad.py, line 2: ZeroDivisionError: division by zero"),
    "a typing mistake": ("x = 1\nif:\n", "plugin bad.py, line 2: SyntaxError"),
    "an exit": ("import sys\nsys.exit(3)", "plugin bad.py, line 2: SystemExit: 3"),
    "half of it": (PAGE["deviation.py"] + "raise ValueError('late')", "line 35: ValueError: late"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_is_refused_and_leaves_nothing(case: str, tmp_path: Path) -> None:
    text, said = BAD[case]
    with pytest.raises(ConfigError) as caught:
        load_plugin(written(tmp_path, "bad.py", text))
    assert said in str(caught.value)
    assert not plugins.additions(*registration.KINDS) and not named_plugins()
    assert load_config("demo").config.surrogate.name == "gated"


def test_a_file_that_is_no_plugin_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("none.py", "cannot be read (No such file"), ("mine.txt", "whose name ends in .py")):
        assert main(["train", "--plugin", str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err
    written(tmp_path, "bytes.py", "\0")
    assert main(["runs", f"--plugin={tmp_path / 'bytes.py'}"]) == 2
    assert "is not a Python file" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "--plugin"])
    assert "--plugin: expected one argument" in capsys.readouterr().err


def test_two_plugins_with_one_name_are_refused_and_a_changed_file_replaces_itself(light: Path, tmp_path: Path) -> None:
    first = load_plugin(light)
    assert load_plugin(light) is first
    with pytest.raises(ConfigError, match=r"the plugin light\.py already has a surrogate named light"):
        load_plugin(written(tmp_path, "two.py", LIGHT + "\n# other"))
    assert load_config("demo", ["surrogate.name=light"]).config.surrogate.depth == 3  # type: ignore[union-attr]
    load_plugin(written(tmp_path, "light.py", LIGHT.replace("depth: int = 3", "depth: int = 4")))
    assert load_config("demo", ["surrogate.name=light"]).config.surrogate.depth == 4  # type: ignore[union-attr]


def test_the_help_of_the_command_lists_what_a_plugin_adds(light: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help", "surrogate.light", "--plugin", str(light)])
    assert "surrogate.depth=3" in capsys.readouterr().out


# installed plugins


class Point:
    """An entry point."""

    name, value = "light", "my_package.light"

    def __init__(self, file: Path) -> None:
        self.file, self.loads = file, 0

    def load(self) -> None:
        self.loads += 1
        load_plugin(self.file)


def test_installed_plugins_are_loaded_only_for_an_unknown_name(light: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point, asked = Point(light), list[str]()

    def points(*, group: str) -> list[Point]:
        asked.append(group)
        return [point]

    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    load_config("demo", ["surrogate.name=kmeans"])
    with pytest.raises(ConfigError, match="must be an integer"):
        load_config("demo", ["training.epochs=none"])
    assert not asked
    assert load_config("demo", ["surrogate.name=light", "surrogate.depth=2"]).config.surrogate.name == "light"
    with pytest.raises(ConfigError, match="must be one of"):
        load_config("demo", ["surrogate.name=nowhere"])
    assert (asked, point.loads) == (["attncem.plugins"], 1)


def test_an_installed_plugin_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = Point(written(tmp_path, "light.py", "1 / 0"))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [point])
    with pytest.raises(ConfigError, match=r"the installed plugin light \(my_package.light\).*ZeroDivisionError"):
        format_help(section="surrogate.light")


# runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> Path:
    """A folder with a run of the page's plugins and its audit, the files of the page beside it."""
    folder = tmp_path_factory.mktemp("plugin")
    for name in ("deviation.py", "blend.py", "more.py", "blend.yaml"):
        written(folder, name)
    with pytest.MonkeyPatch.context() as patch, tables_as_before():
        for name in ("_additions", "_loaded"):
            patch.setattr(plugins, name, {})
        for name in ("deviation.py", "blend.py", "more.py"):
            load_plugin(folder / name)
        keys = {"surrogate": {"name": "deviation", "scale": 2.0}, "channel": [{"name": "uniform", "width": 0.1}]}
        few = {**tiny, "training.epochs": 1, "device": "cpu", "model.name": "two_cuts", "model.cut": "second"}
        train("demo", {**few, **keys}, out=folder / "run", progress=silent)
        audit(folder / "run", folder / "blend.yaml", progress=silent)
    return folder


def test_a_run_records_name_and_hash_and_no_path(made: Path) -> None:
    manifest = json.loads((made / "run/manifest.json").read_text())
    used = {(use["kind"], use["name"]): (use["file"], use["sha256"]) for use in manifest["plugins"]}
    hashes = {name: hashlib.sha256(PAGE[name].encode()).hexdigest() for name in ("deviation.py", "more.py")}
    assert used == {
        ("surrogate", "deviation"): ("deviation.py", hashes["deviation.py"]),
        ("channel", "uniform"): ("more.py", hashes["more.py"]),
        ("network", "two_cuts"): ("more.py", hashes["more.py"]),
    }
    files = [file for file in (made / "run").rglob("*") if file.suffix in (".json", ".yaml", ".jsonl")]
    assert files and not [file for file in files if str(made) in file.read_text()]


def test_without_its_plugin_a_run_is_read_and_not_computed_with(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory.open(made / "run")
    config = run.config
    assert (config.surrogate.name, config.noise_std) == ("deviation", pytest.approx(0.1 / 3**0.5))
    assert dump_config(config) == run.config_yaml
    page = report([made / "run"], tmp_path / "report.html").read_text()
    assert "deviation" in page and "--plugin deviation.py --plugin more.py" in page
    assert privacy_card(made / "run", tmp_path / "card")[0]
    assert main(["runs", str(made)]) == 0
    assert "deviation" in capsys.readouterr().out
    said = r"run uses the surrogate deviation of the plugin deviation\.py \(sha256 [0-9a-f]{12}…\): name it with"
    with pytest.raises(RunError, match=said):
        open_run(made / "run")
    assert main(["predict", str(made / "run"), "test:1"]) == 2
    assert "name it with --plugin FILE.py" in capsys.readouterr().err
    assert not plugins.additions(*registration.KINDS)
    with pytest.raises(ConfigError, match="must be one of"):
        load_config("demo", ["surrogate.name=deviation"])


def test_a_run_does_not_resume_with_another_version_of_its_plugin(made: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "run", run)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": "stopped"}))
    with pytest.raises(RunError, match=r"name it with --plugin FILE\.py"):
        train(resume=run, progress=silent)
    load_plugin(made / "more.py")
    load_plugin(written(tmp_path, "deviation.py", PAGE["deviation.py"] + "# another\n"))
    with pytest.raises(RunError, match=r"began with the surrogate deviation .*; the file now named has sha256"):
        train(resume=run, progress=silent)
    assert [item.code for item in open_run(run).findings] == ["not_finished", "plugin_changed"]
    load_plugin(written(tmp_path, "deviation.py"))
    assert train(resume=run, progress=silent).is_finished
    assert open_run(run).findings == []


def test_an_audit_with_another_version_of_its_attack_is_another_audit(made: Path) -> None:
    before = RunDirectory.open(made / "run").audits()[0].plan
    assert [use.name for use in before.plugins] == ["deviation", "uniform", "two_cuts", "blend"]
    for name in ("deviation.py", "more.py", "blend.py"):
        load_plugin(made / name)
    again = audit(made / "run", made / "blend.yaml", progress=silent).plan
    assert again.id == before.id
    load_plugin(written(made, "blend.py", PAGE["blend.py"] + "# another\n"))
    other = audit(made / "run", made / "blend.yaml", only=["blend"], progress=silent).plan
    assert other.id != before.id


def test_a_damaged_record_of_a_plugin_is_named(made: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(made / "run", run, ignore=shutil.ignore_patterns("checkpoints"))
    manifest = json.loads((run / "manifest.json").read_text())
    planet = [{**manifest["plugins"][0], "kind": "planet"}]
    wrong = {"manifest.json is damaged: plugins.0": [{"kind": "surrogate"}], "manifest.json is damaged": "deviation"}
    for said, plugins_there in {**wrong, "config.yaml cannot be used": planet}.items():
        (run / "manifest.json").write_text(json.dumps({**manifest, "plugins": plugins_there}))
        with pytest.raises(RunError, match=re.escape(said)):
            RunDirectory.open(run).config  # noqa: B018


def test_nothing_is_proven_about_a_channel_of_a_plugin(tmp_path: Path) -> None:
    load_plugin(written(tmp_path, "more.py"))
    channel = build_channel(load_config({"channel": [{"name": "uniform"}, {"name": "gaussian"}]}).config.channel)
    with pytest.raises(NotApplicable, match="UniformChannel is not known"):
        noise_of(channel)

    class Pretended(QuantiseChannel):
        """Says that it has few bits."""

    class CaseOf:
        """As much of a case as is asked for."""

        class model:  # noqa: N801
            channel = Pretended(Pretended.options_type(bits=1))

    assert nats_of_codes(CaseOf) is None  # type: ignore[arg-type]


# other processes


def test_workers_load_the_plugins_of_their_parent(light: Path, tmp_path: Path) -> None:
    load_plugin(light)
    options = load_config("demo", ["surrogate.name=light", "surrogate.depth=7"]).config.surrogate
    with Workers(1, silent, "the test") as pool:
        assert pool.submit(attrgetter("depth"), options).result() == 7
        written(tmp_path, "light.py", LIGHT.replace("depth: int = 3", "depth: int = 4"))
    with Workers(1, silent, "the test") as pool, pytest.raises(ConfigError, match="has changed since the work began"):
        pool.submit(attrgetter("depth"), options).result()


def test_jobs_of_a_cluster_load_the_plugins_of_the_campaign(light: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = load_plugin(light)
    worked: list[str] = []
    for engine in (slurm, ray):
        monkeypatch.setattr(engine, "work", lambda folder, cell, progress: worked.append(cell))
    monkeypatch.setattr(plugins, "_additions", {})
    monkeypatch.setattr(plugins, "_loaded", {})
    slurm.CellJob([plugin])("folder", "one")
    assert plugins.addition("surrogate", "light") is not None
    monkeypatch.setattr(plugins, "_loaded", {})
    ray.work_on("folder", "two", [plugin])
    assert worked == ["one", "two"] and [one.sha256 for one in named_plugins()] == [plugin.sha256]
    with pytest.raises(ConfigError, match="has changed since"):
        load_same([Plugin(plugin.path, "0" * 64, plugin.module)])


# the contract


def test_the_page_keeps_the_contract_of_channels_and_networks(tmp_path: Path) -> None:
    load_plugin(written(tmp_path, "more.py"))
    check_channel(CHANNELS["uniform"])
    check_network(ARCHITECTURES["two_cuts"], {"width": 4})


def test_a_plugins_network_as_the_server_of_a_lean_client_is_recorded(tmp_path: Path) -> None:
    load_plugin(written(tmp_path, "more.py"))
    keys = {"model.name": "lean", "model.macs": 3e5, "model.server": "two_cuts", "model.bottleneck.stride": 1}
    config = load_config("demo-none", keys).config
    assert [(use.kind, use.name) for use in registration.uses_of(config)] == [("network", "two_cuts")]
    check(config)


def test_broken_laws_are_named_all_at_once(tmp_path: Path) -> None:
    text = PAGE["deviation.py"].replace(
        "keep = groups.counts >= 2", "keep = groups.counts >= (2 if deviation.detach().max() > 0 else 3)"
    )
    load_plugin(written(tmp_path, "deviation.py", text.replace(', extra={"active": active}', "")))
    with pytest.raises(ContractError) as caught:
        check_surrogate(SURROGATES["deviation"])
    assert "Deviation breaks 3 of 17 laws" in str(caught.value)
    for law in ("forward_never_reads", "compiles_to_one_graph", "outputs_are_detached_scalars"):
        assert law in str(caught.value)
    load_plugin(written(tmp_path, "blend.py", PAGE["blend.py"].replace(".clamp(0, 1)", " + 1")))
    with pytest.raises(ContractError, match=r"answers_are_images: .*pixels lie between") as caught:
        check_attack(plugins.additions("attack")[0].made)
    assert "recovers_what_is_not_hidden" in str(caught.value)


def test_a_surrogate_that_learns_to_look_away_fails_the_truth_test(tmp_path: Path) -> None:
    load_plugin(written(tmp_path, "deviation.py"))
    honest = SURROGATES["deviation"]

    class Gated(honest):  # type: ignore[misc,valid-type]
        """Multiplies its report by a weight, and trains the weight to lower it."""

        def __init__(self, options: Any, **sizes: Any) -> None:
            super().__init__(options, **sizes)
            self.gate = torch.nn.Parameter(torch.ones(()))

        def _evaluate(self, z: Any, y: Any, noise: Any) -> Any:
            from dataclasses import replace

            output = super()._evaluate(z, y, noise)
            loss = output.loss * self.gate.detach().clamp_min(0)
            return replace(output, loss=loss, diagnostics={**output.diagnostics, "rob_loss": loss.detach()})

        def _fit(self, z: Any, y: Any, noise: Any) -> Any:
            return super()._evaluate(z, y, noise).loss.detach() * self.gate.clamp_min(0)

    with pytest.raises(ContractError, match=r"training_hides_no_spread: Truth: .*after 300 steps") as caught:
        check_surrogate(Gated)
    assert "breaks 1 of 17 laws" in str(caught.value)


def test_the_contract_needs_no_pytest() -> None:
    folder = Path(plugins.__file__).parents[1] / "testing"
    texts = [file.read_text() for file in folder.glob("*.py")]
    assert texts and not any(f"{word} pytest" in text for text in texts for word in ("import", "from"))
