"""The command: its verbs, its help, its exit codes, and that a mistake gets a clear line and no traceback."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import attncem
from attncem.base.progress import silent
from attncem.cli.main import _parser, main
from attncem.config.loading.describe import COMMON, describe_options
from attncem.config.loading.load import load_config, packaged_configs
from attncem.data.sources import SOURCES
from attncem.data.specs import DATASETS
from attncem.records.runs import RunDirectory
from attncem.training.train import train

VERBS = ("train", "audit", "report", "card", "predict", "explain", "demo", "data", "runs", "config")
WITH_OVERRIDES = ("train", "demo", "config")


class Outcome:
    """Exit code and output of one command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run_cli(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command in this process."""

    def run(*words: str) -> Outcome:
        capsys.readouterr()
        try:
            code = main(list(words))
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Any]) -> Path:
    """A small finished run; nothing may change it."""
    return train("demo-none", tiny, out=tmp_path_factory.mktemp("cli") / "run", progress=silent).path


def words_of(settings: dict[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


# help


def test_help_is_fast() -> None:
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "attncem", "--help"], check=True, capture_output=True, text=True)
        seconds.append(time.perf_counter() - started)
        assert all(verb in done.stdout for verb in VERBS)
    assert min(seconds) < 1.0, "0.5 s is the aim; slow machines get twice that"


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["audit", "--help"], ["config", "--schema"]])
def test_torch_is_not_imported_for_what_needs_no_computation(words: list[str]) -> None:
    python(
        "import sys\nfrom attncem.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "assert 'torch' not in sys.modules"
    )


@pytest.mark.parametrize("words", [["train", "seeed=1"], ["data"], ["runs"], ["config", "--list"]])
def test_torch_is_not_imported_for_mistakes_and_lists(words: list[str]) -> None:
    python(f"import sys\nfrom attncem.cli.main import main\nmain({words!r})\nassert 'torch' not in sys.modules")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(run_cli: Any, verb: str) -> None:
    shown = run_cli(verb, "--help")
    assert shown.code == 0
    assert shown.out.startswith(f"usage: attncem {verb}")
    assert "--help" in shown.out
    assert shown.err == ""


def test_without_a_verb_the_help_is_shown(run_cli: Any) -> None:
    shown = run_cli()
    assert (shown.code, shown.err, shown.out) == (2, "", run_cli("--help").out), "not 0: nothing was done"


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["help"], ["--help"]),
        (["help", "audit"], ["audit", "--help"]),
        (["help", "campaign", "run"], ["campaign", "run", "--help"]),
        (["help", "train", "surrogate.gated"], ["train", "--help", "surrogate.gated"]),
        (["version"], ["--version"]),
        (["--lang", "zh", "config", "--list"], ["config", "--list", "--lang", "zh"]),
        (["--lang=zh", "campaign", "list"], ["campaign", "list", "--lang", "zh"]),
    ],
)
def test_other_spellings_of_a_command(run_cli: Any, words: list[str], same: list[str]) -> None:
    shown, expected = run_cli(*words), run_cli(*same)
    assert (shown.code, shown.out, shown.err) == (0, expected.out, "") and shown.out


def test_options_are_spelt_with_dashes_or_underscores(run_cli: Any) -> None:
    """And shown with dashes: no other spelling is in a help."""
    for word in ("--init-from", "--init_from", "--init_from=there_is_none"):
        assert "model.init_from=there_is_none" in run_cli("train", word, *["there_is_none"][: "=" not in word]).err
    missing = [run_cli("audit", "no_such_run", option, "mse<1").err for option in ("--fail-if", "--fail_if")]
    assert missing[0] == missing[1] and "no_such_run is not a run folder" in missing[0]
    parser, _ = _parser()
    assert [name for name in parser.options() if "_" in name] == []


@pytest.mark.parametrize("verb", WITH_OVERRIDES)
def test_help_lists_every_option_of_a_run(run_cli: Any, verb: str) -> None:
    lines = run_cli(verb, "--help", "all").out.splitlines()
    listed = {line.split("=")[0].strip() for line in lines if "=" in line}
    keys = {option.key for option in describe_options()}
    assert len(keys) > 50
    assert keys <= listed


@pytest.mark.parametrize("verb", WITH_OVERRIDES)
def test_help_lists_the_common_options_and_says_how_to_see_the_others(run_cli: Any, verb: str) -> None:
    shown = run_cli(verb, "--help").out
    listed = {line.split("=")[0].strip() for line in shown.splitlines() if "=" in line}
    assert set(COMMON) <= listed
    assert "--help surrogate" in " ".join(shown.split()).replace("SECTION, e.g. ", "")
    assert run_cli(verb, "--help", "nothing").code == 2


def test_only_verbs_with_overrides_list_them(run_cli: Any) -> None:
    assert "training.epochs" not in run_cli("audit", "--help").out


def test_version(run_cli: Any) -> None:
    shown = run_cli("--version")
    assert (shown.code, shown.out) == (0, f"attncem {attncem.__version__}\n")


def test_python_m_and_the_script_are_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "attncem", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"attncem {attncem.__version__}\n"


# mistakes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "trian: there is no such verb; did you mean train?"),
        (["--nope", "data"], "--nope"),
        (["runs", "a", "b"], "unexpected b"),
        (["audit", "x", "--wieghts", "best"], "unexpected --wieghts"),
        (["audit"], "audit needs at least one run folder"),
        (["train", "--config", "demmo"], "did you mean demo?"),
        (["train", "--config", "missing.yaml"], "missing.yaml: no such file"),
        (["train", "training.epoch=3"], "did you mean training.epochs?"),
        (["train", "--training.epoch", "3"], "did you mean training.epochs?"),
        (["train", "seed=abc"], "seed=abc: must be an integer"),
        (["train", "stray"], "stray"),
        (["train", "--fast", "quick"], "training.fast=quick: must be one of: auto, off"),
        (["train", "model.cut=9"], "model.cut=9"),
        (["train", "--conf", "demo"], "conf"),
        (["train", "--resume", "nowhere"], "nowhere is not a run folder"),
        (["config", "surrogate.name=kmean"], "kmeans"),
        (["audit", "nowhere"], "nowhere is not a run folder"),
        (["report", "nowhere"], "nowhere is not a run folder"),
        (["predict", "nowhere"], "required: IMAGE"),
        (["predict", "nowhere", "test:0"], "nowhere is not a run folder"),
        (["predict", "nowhere", "test:0", "--top", "0"], "top=0: must be at least 1"),
        (["explain", "nowhere", "test:0"], "nowhere is not a run folder"),
        (["explain", "nowhere", "test:0", "test:1"], "unexpected test:1"),
        (["demo", "--workers", "0"], "workers=0"),
        (["demo", "--workers", "two"], "invalid int value"),
        (["demo", "name=mine"], "name cannot be set for the demo"),
        (["train", "--out", ""], "out must not be empty"),
        (["train", "--resume", ""], "resume must not be empty"),
        (["report", "x", ""], "runs must not be empty"),
        (["report", "x", "--out", "."], "--out .: is a folder; give the name of a file"),
        (["train", "--seed", "1" * 23], f"seed={'1' * 23}: whole numbers have at most 64 bits"),
        (["audit", "x", "--seed", "1" * 23], f"seed={'1' * 23}: whole numbers have at most 64 bits"),
        (["audit", "x", "--seed", "1" * 5000], "invalid int value"),
        (["runs", "a" * 300], "File name too long"),
        (["predict", "a" * 300, "test:0"], "File name too long"),
        (["train", "--config", f"{'a' * 300}.yaml"], "File name too long"),
        (["train", "name=" + "a" * 300], "name=aaa"),
        (["runs", "a", "\x1b[31mred\r"], r"unexpected \x1b[31mred\r"),
        (["train", "\x1b[31mred=1"], r"'\x1b[31mred': unknown key"),
    ],
)
def test_a_mistake_gets_a_line_and_exit_code_2(
    run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run_cli(*words)
    assert shown.code == 2
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_a_mistake_shows_no_traceback_in_a_real_process(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "attncem", "train", "training.epoch=3"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("attncem: error: training.epoch: unknown key")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("other", [["seed=1"], ["--config", "demo"], ["--out", "elsewhere"], ["--fast", "off"]])
def test_resume_refuses_other_options(run_cli: Any, run_folder: Path, other: list[str]) -> None:
    before = {p: p.read_bytes() for p in run_folder.rglob("*") if p.is_file()}
    shown = run_cli("train", "--resume", str(run_folder), *other)
    assert shown.code == 2
    assert "resume takes everything from the run folder" in shown.err
    assert {p: p.read_bytes() for p in run_folder.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            ["--suite", "quik"],
            "quik: no packaged suite of this name (one of: certificates, full, quick, standard)",
        ),
        (["--threat", "heldout"], "did you mean held_out?"),
        (["--on", "train"], "on=train is unknown"),
        (["--weights", "epoch-00009"], "has no checkpoint epoch-00009"),
        (["--device", "tpu"], "device=tpu is unknown"),
    ],
)
def test_audit_refuses_unknown_choices(run_cli: Any, run_folder: Path, option: list[str], message: str) -> None:
    shown = run_cli("audit", str(run_folder), *option)
    assert shown.code == 2
    assert message in shown.err
    assert not list((run_folder / "audits").iterdir())


# verbs


def test_train_says_where_and_what_next(run_cli: Any, tmp_path: Path, tiny: dict[str, Any]) -> None:
    out = tmp_path / "my [run]"
    shown = run_cli("train", "--config", "demo-none", "--out", str(out), *words_of(tiny))
    assert shown.code == 0
    assert f"Next: attncem audit {out}\n" in shown.err
    best = RunDirectory.open(out).manifest["best"]["validation_accuracy"]
    assert f"validation accuracy {100 * best:.1f} %" in shown.err
    assert shown.out == ""


def test_train_takes_the_demo_unless_told_otherwise(
    run_cli: Any, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {**tiny, "training.epochs": 1}
    assert run_cli("train", *words_of(settings), "--seed", "3", "--fast", "off").code == 0
    config = load_config(Path("runs/demo-gated-001/config.yaml")).config
    assert config == load_config("demo", {**settings, "seed": 3, "training.fast": "off"}).config


def test_a_changed_name_is_noted(run_cli: Any, tmp_path: Path, tiny: dict[str, Any]) -> None:
    words = (*words_of(tiny), "channel.name=identity")
    shown = run_cli("train", "--config", "demo-none", "--out", str(tmp_path / "run"), *words)
    assert shown.code == 0
    assert shown.err.startswith("note: channel.0.name: gaussian → identity drops noise_std=0.1\n")


def test_a_caution_is_shown(run_cli: Any, tmp_path: Path, tiny: dict[str, Any]) -> None:
    words = (*words_of(tiny), "surrogate.variant=004")
    shown = run_cli("train", "--config", "demo", "--out", str(tmp_path / "run"), *words)
    assert shown.code == 0
    assert shown.err.startswith("caution: learn=penalty")


def test_resume_of_a_finished_run(run_cli: Any, run_folder: Path) -> None:
    shown = run_cli("train", "--resume", str(run_folder))
    assert shown.code == 0
    assert f"Next: attncem audit {run_folder}" in shown.err


def test_report_of_a_run_without_audit(run_cli: Any, run_folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = run_cli("report", str(run_folder), "--out", str(page))
    assert (shown.code, shown.out) == (0, f"{page}\n")
    assert "<html" in page.read_text(encoding="utf-8")
    shown = run_cli("report", str(run_folder), "--out", str(page), "--csv")
    assert shown.code == 0
    assert [p.suffix for p in sorted(tmp_path.iterdir())] == [".csv", ".html"]


def test_config_prints_what_loads_back(run_cli: Any, tmp_path: Path) -> None:
    shown = run_cli("config", "--config", "demo", "seed=7", "--training.epochs", "9")
    assert shown.code == 0
    file = tmp_path / "printed.yaml"
    file.write_text(shown.out)
    assert load_config(file).config == load_config("demo", ["seed=7", "training.epochs=9"]).config
    assert run_cli("config").out != shown.out


def test_config_notes_a_changed_name_on_stderr(run_cli: Any) -> None:
    shown = run_cli("config", "--config", "demo-none", "channel.name=identity")
    assert shown.code == 0
    assert shown.err.startswith("note: channel.0.name")
    assert "note:" not in shown.out


def test_config_schema_is_json(run_cli: Any) -> None:
    schema = json.loads(run_cli("config", "--schema").out)
    assert {"training", "surrogate", "data"} <= set(schema["properties"])


def test_config_list(run_cli: Any) -> None:
    lines = run_cli("config", "--list").out.splitlines()
    assert {line.split()[0] for line in lines} == set(packaged_configs())
    assert all(len(line.split()) > 3 for line in lines)


def test_runs_lists_them(run_cli: Any, run_folder: Path, tmp_path: Path) -> None:
    shown = run_cli("runs", str(run_folder.parent))
    assert shown.code == 0
    for word in ("finished", "none", "2/2"):
        assert word in shown.out
    assert run_cli("runs", str(tmp_path)).out == f"no runs in {tmp_path} or its sub-folders\n"


def test_tables_keep_long_names_whole(run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = run_cli("data")
    assert shown.code == 0
    heading, _, *rows = shown.out.partition("data set")[2].split("\n \n")[0].splitlines()
    width = len(" data set") + heading.index("images")
    cells = [line[:width].strip() for line in rows if line.startswith(" ")]
    assert "".join(cells) == "".join(DATASETS)
    assert "…" not in shown.out


def test_data_lists_every_set_and_how_to_get_it(run_cli: Any, tmp_path: Path) -> None:
    shown = run_cli("data", "--root", str(tmp_path))
    assert shown.code == 0, "a missing set is no mistake"
    for name, source in SOURCES.items():
        assert f"\n{name}: " in shown.out
        assert name == "fashion_mnist_mini" or source.how in shown.out
    assert f"not in {tmp_path / 'cifar-10-batches-py'}" in shown.out


def test_data_verifies_what_is_there(run_cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / name).write_bytes(b"torn")
    assert run_cli("data", "--root", str(tmp_path)).code == 0
    shown = run_cli("data", "--root", str(tmp_path), "--verify")
    assert shown.code == 2
    assert f"cifar100: {folder / 'train'} is damaged" in shown.out


# JSON


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["data"], {"data_sets"}),
        (["config", "--list"], {"configurations"}),
        (["config", "training.epochs=3"], {"config"}),
        (["campaign", "list"], {"campaigns"}),
        (["campaign", "plan", "demo"], {"name", "folder", "states", "cells", "seconds_to_come", "free_bytes"}),
    ],
)
def test_json_alone_goes_to_stdout(
    run_cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], keys: set[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run_cli(*words, "--json")
    assert shown.code == 0
    assert keys | {"schema_version"} <= json.loads(shown.out).keys()


def test_json_of_runs_and_data_holds_numbers(run_cli: Any, run_folder: Path, tmp_path: Path) -> None:
    (run,) = json.loads(run_cli("runs", str(run_folder.parent), "--json").out)["runs"]
    assert (run["run"], run["status"], run["epoch"], run["epochs"], run["audits"]) == ("run", "finished", 2, 2, 0)
    assert 0 < run["accuracy"] < 1 and run["mse"] is None and run["audited"] is False
    assert json.loads(run_cli("runs", str(tmp_path), "--json").out)["runs"] == []
    sets = {item["name"]: item for item in json.loads(run_cli("data", "--json").out)["data_sets"]}
    assert sets["fashion_mnist_mini"]["classes"] == 10 and sets["image_folder"]["train"] is None
    cells = json.loads(run_cli("campaign", "plan", "demo", "--out", str(tmp_path / "none"), "--json").out)["cells"]
    assert {cell["state"] for cell in cells} == {"planned"} and not (tmp_path / "none").exists()


def test_every_verb_that_prints_a_table_takes_json(run_cli: Any) -> None:
    one = ("audit", "compare", "card", "predict", "explain", "search", "demo", "data", "runs", "config")
    for words in (*((name,) for name in one), *(("campaign", name) for name in ("plan", "status", "list"))):
        assert "--json" in run_cli(*words, "--help").out, words


def test_ctrl_c_ends_with_130(run_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    for home, words, said in (
        ("attncem.records.listing.describe_runs", ["runs"], "attncem: interrupted\n"),
        ("attncem.training.train.train", ["train"], "resume with: attncem train --resume RUN"),
        ("attncem.judging.auditing.audit", ["audit", "x"], "the same command continues with the others"),
    ):
        monkeypatch.setattr(home, interrupted)
        shown = run_cli(*words)
        assert shown.code == 130
        assert said in shown.err


# terminals, pipes and memory


def command(*words: str, cwd: Path, shell: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own; `shell` is what its output goes to."""
    line = f"{shlex.join([sys.executable, '-m', 'attncem', *words])} {shell}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    bash = ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}} > code"]
    done = subprocess.run(bash, capture_output=True, cwd=cwd, env=env, check=False, timeout=120)
    assert b"Traceback" not in done.stderr + done.stdout
    assert b"Error" not in done.stderr
    return done


def code_of(cwd: Path) -> int:
    return int((cwd / "code").read_text())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize("words", [["config", "--list"], ["data"], ["train", "--help"], ["train", "channel.name=σ"]])
def test_a_terminal_without_the_letters_gets_escapes(tmp_path: Path, encoding: str, words: list[str]) -> None:
    done = command(*words, cwd=tmp_path, PYTHONIOENCODING=encoding)
    assert code_of(tmp_path) == (2 if "channel.name=σ" in words else 0)
    (done.stdout + done.stderr).decode(encoding)
    assert b"Allowed" not in done.stderr
    if words == ["data"]:
        assert b"+----" in done.stdout
        assert b"\\u25" not in done.stdout, "tables are drawn with letters that are there"


def test_predictions_on_a_terminal_without_the_letters(run_folder: Path, tmp_path: Path) -> None:
    done = command("predict", str(run_folder), "test:0", "--json", cwd=tmp_path, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert json.loads(done.stdout)["predictions"][0]["source"] == "test:0"
    assert code_of(tmp_path) == 0


@pytest.mark.parametrize("words", [["config", "--list"], ["config", "--schema"], ["data"], ["train", "--help"]])
def test_a_reader_that_has_gone_is_no_error(tmp_path: Path, words: list[str]) -> None:
    done = command(*words, cwd=tmp_path, shell="| true")
    assert (done.stderr, code_of(tmp_path)) == (b"", 0)


def test_training_goes_on_when_nobody_reads_its_progress(tmp_path: Path, tiny: dict[str, Any]) -> None:
    words = ["train", "--config", "demo-none", "--out", "run", *words_of(tiny)]
    command(*words, cwd=tmp_path, shell="2>&1 | true")
    assert code_of(tmp_path) == 0
    assert RunDirectory.open(tmp_path / "run").manifest["status"] == "finished"


@pytest.mark.parametrize("words", [["config"], ["data"]])
def test_output_that_cannot_be_written_is_an_error(tmp_path: Path, words: list[str]) -> None:
    done = command(*words, cwd=tmp_path, shell="> /dev/full")
    assert done.stderr == b"attncem: error: stdout cannot be read or written: No space left on device\n"
    assert code_of(tmp_path) == 2


def test_streams_that_are_closed(tmp_path: Path) -> None:
    for closed in (">&-", "2>&-"):
        command("data", cwd=tmp_path, shell=closed)
        assert code_of(tmp_path) == 0


@pytest.mark.parametrize("out", ["a" * 300, "/proc/run", "run/inside", "."])
def test_a_place_that_cannot_be_written(
    run_cli: Any, tmp_path: Path, tiny: dict[str, Any], out: str, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").write_text("a file")
    shown = run_cli("train", "--config", "demo-none", "--out", out, *words_of(tiny))
    assert shown.code == 2
    assert shown.err.startswith("attncem: error: ")
    assert "Traceback" not in shown.err
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_names_cannot_steer_the_terminal(
    run_cli: Any, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    strange = "\x1b[31mred\x07\r[b]\x9b"
    shutil.copytree(run_folder, tmp_path / strange)
    (tmp_path / "class" / "train" / strange).mkdir(parents=True)
    (tmp_path / "class" / "test" / strange).mkdir(parents=True)
    outputs = [
        run_cli("runs", str(tmp_path)),
        run_cli("runs", str(tmp_path / "class" / "train" / strange)),
        run_cli("train", "--resume", str(tmp_path / strange)),
        run_cli("train", "--resume", str(tmp_path / f"{strange}2")),
        run_cli("data", "--root", str(tmp_path / "class"), "--verify"),
        run_cli("report", str(tmp_path / strange), "--out", str(tmp_path / f"{strange}.html")),
    ]
    for shown in outputs:
        text = (shown.out + shown.err).replace("\n", "")
        assert text.isprintable()
        assert "red" in text
        assert "[b]" in text, "markup is no markup either"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: 8 bytes"
        ),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB."),
    ],
)
def test_memory_that_runs_out_is_explained(run_cli: Any, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def exhausted(*given: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("attncem.records.listing.describe_runs", exhausted)
    shown = run_cli("runs")
    assert shown.code == 2
    assert shown.err.startswith("attncem: error: out of memory (")
    assert "training.batch_size" in shown.err
    assert "()" not in shown.err


def test_memory_that_runs_out_names_the_stage(run_cli: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def exhausted(*given: Any, **options: Any) -> None:
        raise MemoryError("Unable to allocate 5 GiB")

    monkeypatch.setattr("attncem.training.build.read_dataset", exhausted)
    shown = run_cli("train", "--config", "demo", "--out", str(tmp_path / "run"))
    assert (shown.code, (tmp_path / "run").exists()) == (2, False)
    assert "out of memory (reading the data set fashion_mnist_mini; Unable to allocate 5 GiB)" in shown.err


def test_other_errors_of_ours_keep_their_traceback(run_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any, **options: Any) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr("attncem.records.listing.describe_runs", broken)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        run_cli("runs")
