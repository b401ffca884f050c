"""Engines that hand cells to a scheduler: their bookkeeping, what they refuse, and real jobs (slow)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from attncem.base.progress import silent
from attncem.base.types import ConfigError
from attncem.campaigns import run_campaign
from attncem.campaigns.engines import ENGINES, Ended, EngineOptions
from attncem.campaigns.engines import base as polling
from attncem.campaigns.engines.base import PolledEngine, needed
from attncem.campaigns.engines.slurm import JOBS, SlurmEngine
from attncem.campaigns.expansion import expand
from attncem.campaigns.running import default_options
from attncem.cli.main import _parser, main
from attncem.cli.verbs.engine import engine_options
from attncem.config.options.campaigns import load_campaign
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.checkpoints import checkpoint_names

TINY: dict[str, Any] = {
    "name": "tiny",
    "set": {"training.epochs": 2, "training.checkpoint_every": 1},
    "arms": {"none": {}, "broken": {"set": {"data.name": "cifar10", "data.root": "/no/such/folder"}}},
    "audits": [{"suite": "quick", "only": ["mean image"]}],
    "portraits": False,
}
"""Two cells, of which one fails in a second: there is no such data."""
SMALL = {"model.width": 4, "data.held_out_fraction": 0.8, "training.batch_size": 32}
"""A run whose epochs take a tenth of a second."""
NONE, BROKEN = "none-s0", "broken-s0"


def made(path: Path, **changes: Any) -> CampaignFolder:
    campaign = load_campaign({**TINY, **changes})
    return CampaignFolder.create(path, campaign, expand(campaign))


# how many


@pytest.mark.parametrize(
    ("device", "gpu", "threads", "workers"),
    [("auto", False, 1, 4), ("auto", True, 1, 2), ("cpu", True, 1, 4), ("auto", False, 4, 1), ("cpu", True, 3, 1)],
)
def test_processes_where_nobody_says_how_many(
    device: str, gpu: bool, threads: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU is shared by two; cores are one each, or as many as a run has threads; never more than cells."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/bin/{tool}" if gpu else None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu or pytest.fail("torch is not asked without a driver"))
    folder = made(tmp_path / "campaign", set={"device": device, "threads": threads}, seeds=4)
    assert default_options(folder).workers == workers
    few = made(tmp_path / "few", set={"device": "cpu"}, arms={"none": {}})
    assert default_options(few).workers == 1


# bookkeeping


class Jobs(PolledEngine[str]):
    """Jobs that end when the test says so."""

    def __init__(self, folder: CampaignFolder, options: EngineOptions) -> None:
        super().__init__(folder, options, silent)
        self.started, self.over, self.cancelled = list[str](), set[str](), list[str]()

    def _start(self, cell_id: str) -> str:
        self.started.append(cell_id)
        return f"job of {cell_id}"

    def _has_ended(self, job: str) -> bool:
        return job in self.over

    def _cancel(self, job: str) -> None:
        self.cancelled.append(job)

    def _about(self, job: str) -> str:
        return job


def test_no_more_jobs_than_workers_are_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "_PAUSE", 0.01)
    engine = Jobs(made(tmp_path / "campaign"), EngineOptions(workers=1))
    engine.submit(NONE)
    engine.submit(BROKEN)
    assert engine.started == [NONE]
    assert engine.wait(0.05) == []
    engine.over.add(f"job of {NONE}")
    (ended,) = engine.wait(5)
    assert ended == Ended(NONE, f"job of {NONE} ended without a result: killed, or out of memory?")
    engine.wait(0)
    assert engine.started == [NONE, BROKEN]
    engine.stop()
    engine.stop()
    assert engine.cancelled == [f"job of {BROKEN}"], "what has ended is not cancelled"
    assert engine.wait(5) == [], "with nothing at work nobody waits"


def test_how_a_cell_ended_is_read_from_the_folder(tmp_path: Path) -> None:
    folder = made(tmp_path / "campaign")
    engine = Jobs(folder, EngineOptions(workers=2))
    engine.submit(BROKEN)
    folder.fail(BROKEN, "train", ConfigError("no such data"))
    engine.over.add(f"job of {BROKEN}")
    assert engine.wait(0) == [Ended(BROKEN, "no such data")]


@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_an_engine_whose_library_is_missing_names_its_extra(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"slurm": "submitit", "ray": "ray"}[engine], None)
    with pytest.raises(ConfigError, match=rf'engine={engine} needs .* pip install "attncem\[{engine}\]"'):
        run_campaign(TINY, out=tmp_path / "campaign", engine=engine, progress=silent)


def test_where_there_is_no_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"engine=slurm: .*srun.* Start it where sbatch and srun are"):
        run_campaign(TINY, out=tmp_path / "campaign", engine="slurm", progress=silent)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_workers_are_refused(engine: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="workers=0"):
        run_campaign(TINY, out=tmp_path / "campaign", engine=engine, options=EngineOptions(workers=0), progress=silent)


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.*slrum.*slurm"):
        run_campaign(TINY, out=tmp_path / "campaign", engine="slrum", progress=silent)
    assert not (tmp_path / "campaign").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--partition", "gpu"], "--partition is for --engine slurm, not for local"),
        (["--engine", "slurm", "--address", "auto"], "--address is for --engine ray"),
        (["--engine", "ray", "--minutes", "5"], "--minutes is for --engine slurm"),
        (["--engine", "slurm", "--gpus", "-1"], "gpus=-1: at least 0"),
        (["--engine", "slurm", "--minutes", "0"], "minutes=0: at least 1"),
        (["--workers", "0"], "workers=0: at least 1"),
    ],
)
def test_options_that_an_engine_has_no_use_for_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in (["campaign", "run", "demo"], ["search", "search-demo"]):
        assert main([*verb, "--out", str(tmp_path / "out"), *words]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_was_given_reaches_the_engine() -> None:
    words = ["campaign", "run", "demo", "--engine", "slurm", "--partition", "gpu", "--gpus", "2", "--minutes", "30"]
    known, _ = _parser()[0].parse_known_args(words)
    assert engine_options(known) == EngineOptions(workers=16, partition="gpu", gpus=2, minutes=30)
    known, _ = _parser()[0].parse_known_args(["search", "search-demo"])
    assert engine_options(known) is None, "as many as fit"


def test_a_library_that_is_there_is_given() -> None:
    assert needed("json", "slurm").dumps([]) == "[]"


SBATCH = """#!/bin/sh
cp "$1" {folder}/submission.sh
echo "Submitted batch job 4711"
"""
SACCT = """#!/bin/sh
echo "JobID|State|NodeList"
echo "4711|$(cat {folder}/state)|node1"
"""


def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands that answer as Slurm's do, for a cluster with one job."""
    tools = folder / "tools"
    tools.mkdir()
    scripts = {
        "sbatch": SBATCH,
        "sacct": SACCT,
        "srun": "#!/bin/sh\n",
        "scancel": f'#!/bin/sh\necho "$@" >> {tools}/cancelled\n',
    }
    for name, text in scripts.items():
        (tools / name).write_text(text.format(folder=tools))
        (tools / name).chmod(0o755)
    (tools / "state").write_text("PENDING")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools


def test_a_job_asks_slurm_for_what_was_given_and_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = cluster(tmp_path, monkeypatch)
    folder = made(tmp_path / "campaign")
    options = EngineOptions(workers=4, partition="gpu", gpus=1, minutes=90)
    first = SlurmEngine(folder, options)
    first.submit(NONE)
    asked = (tools / "submission.sh").read_text()
    for line in ("--partition=gpu", "--gpus-per-node=1", "--time=90"):
        assert f"#SBATCH {line}\n" in asked
    (tools / "submission.sh").unlink()
    # the process that ran the campaign is killed: nothing is cancelled, and the next one finds its job
    second = SlurmEngine(folder, options)
    second.submit(NONE)
    assert not (tools / "submission.sh").exists(), "it waits in the queue already"
    second.stop()
    assert (tools / "cancelled").read_text().split() == ["4711"]
    (tools / "state").write_text("CANCELLED")
    third = SlurmEngine(folder, options)
    third.submit(NONE)
    assert (tools / "submission.sh").exists(), "the old job has ended"


# real jobs

SCRIPT = """
import sys
from pathlib import Path
from attncem.campaigns import run_campaign
from attncem.campaigns.running import default_options
from attncem.campaigns.engines import EngineOptions
from attncem.campaigns.engines.slurm import SlurmEngine
SlurmEngine.cluster = "local"
if __name__ == "__main__":
    run_campaign(Path(sys.argv[2]), engine=sys.argv[1], options=EngineOptions(workers=2))
"""


def started(engine: str, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """A process of its own that runs a campaign."""
    script = log.with_suffix(".py")
    script.write_text(SCRIPT)
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, str(script), engine, str(folder)], stdout=file, stderr=file, start_new_session=True
        )


def until(condition: Any, process: subprocess.Popen[bytes], log: Path, seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def states(folder: CampaignFolder) -> dict[str, str]:
    return {view.cell.id: view.state for view in folder.views()}


def is_training(folder: CampaignFolder) -> bool:
    """Whether a checkpoint is whole: one that is still being written goes away when its process is stopped."""
    return bool(checkpoint_names(folder.run_path(NONE) / "checkpoints"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["slurm", "ray"])
def test_a_campaign_runs_goes_on_after_a_kill_and_a_failing_cell_is_isolated(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With submitit's local executor, and with a Ray instance of this machine."""
    monkeypatch.setattr(SlurmEngine, "cluster", "local")
    folder = made(tmp_path / "campaign", set={**SMALL, "training.epochs": 12})
    first, log = started(engine, folder.path, tmp_path / "first.log"), tmp_path / "first.log"
    until(lambda: is_training(folder), first, log)
    first.kill()
    first.wait()
    assert states(folder)[NONE] != "done"
    second = started(engine, folder.path, tmp_path / "second.log")
    assert second.wait(250) == 0, (tmp_path / "second.log").read_text()
    assert states(folder) == {NONE: "done", BROKEN: "failed"}
    failure = folder.failure(BROKEN)
    assert failure is not None and "/no/such/folder" in failure.reason
    timing = (folder.run_path(NONE) / "timing.jsonl").read_text().splitlines()
    assert len(timing) == 12, "every epoch once"
    if engine == "slurm":
        assert list((folder.path / JOBS).glob("*_log.out"))


ASK = """
import sys
from attncem.records.campaign_folder import CampaignFolder
from attncem.campaigns.engines import ENGINES, EngineOptions
with ENGINES["ray"](CampaignFolder.open(sys.argv[1]), EngineOptions(workers=2)):
    import ray
    print("at", *(node["NodeManagerAddress"] for node in ray.nodes()))
print("left", ray.is_initialized())
"""


@pytest.mark.slow
def test_ray_on_one_machine_is_reachable_from_that_machine_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "campaign")
    words = [sys.executable, "-c", ASK, str(folder.path)]
    said = subprocess.run(words, check=True, capture_output=True, text=True, timeout=200).stdout
    assert "at 127.0.0.1\n" in said and "left False" in said


@pytest.mark.slow
def test_stopping_an_engine_ends_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmEngine, "cluster", "local")
    folder = made(tmp_path / "campaign", set={**SMALL, "training.epochs": 6000})
    with SlurmEngine(folder, EngineOptions(workers=1)) as engine:
        engine.submit(NONE)
        deadline = time.monotonic() + 150
        while not is_training(folder) and time.monotonic() < deadline:
            assert engine.wait(0.2) == []
    assert is_training(folder)
    deadline = time.monotonic() + 20
    while folder.view(folder.cell(NONE)).state == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert folder.view(folder.cell(NONE)).state == "interrupted"


@pytest.mark.slow
def test_a_cell_may_be_trained_by_several_processes(tmp_path: Path) -> None:
    """What `processes` starts, torchrun's way, works inside a worker of a campaign too."""
    asked = {**TINY, "arms": {"none": {"set": {**SMALL, "processes": 2, "device": "cpu"}}}}
    result = run_campaign(asked, out=tmp_path / "campaign", options=EngineOptions(workers=1), progress=silent)
    assert [(view.cell.id, view.state) for view in result.cells] == [(NONE, "done")], result.failed
