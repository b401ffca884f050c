"""How long an audit will take: told before the first row, from trials, without a trace in the numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from attncem.base.courses import LEFT, SPENT, format_duration
from attncem.base.progress import silent
from attncem.config.loading.load import load
from attncem.config.options.attacks import BudgetOptions, DecoderOptions, GreyOptions, OptimisationOptions, RidgeOptions
from attncem.config.options.probes import MembershipOptions
from attncem.config.options.suites import Suite
from attncem.config.threats import THREATS
from attncem.judging.attacks import ATTACKS
from attncem.judging.attacks.base import Attack
from attncem.judging.attacks.convergence import steps_of, until_converged
from attncem.judging.attacks.forecast import Seconds, eigenvectors, products, timed
from attncem.judging.auditing import Case, audit, forecasting
from attncem.judging.auditing.forecasting import Schedule, forecast, foretell
from attncem.judging.judges import Probe
from attncem.judging.opening import open_run
from attncem.judging.probes.label_leakage import LabelLeakage
from attncem.judging.probes.reidentification import Reidentification

DECODER = {"name": "decoder", "epochs": 6, "max_epochs": 12}


def suite_of(rows: Mapping[str, Any]) -> Suite:
    return load(Suite, {"name": "tried", "version": 1, "meaning": "for a test", "rows": dict(rows)}).config


class Listener:
    """Progress with a place for lines."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
        self.said.append(f"{stage} {done:g}")

    def line(self, text: str) -> None:
        self.said.append(text)

    @property
    def forecasts(self) -> list[str]:
        return [said for said in self.said if "on this CPU" in said]


# parts


def test_seconds_add_and_multiply() -> None:
    assert Seconds(1, 2) + Seconds(3, 5) == Seconds(4, 7)
    assert Seconds(1, 2).times(3) == Seconds(3, 6)
    assert Seconds(1, 2).times(3, 4) == Seconds(3, 8)


def test_a_trial_takes_as_long_as_what_is_tried() -> None:
    found = timed(lambda: time.sleep(0.01))
    assert 0.01 <= found.least <= found.most < 0.1
    long = timed(lambda: time.sleep(0.12))
    assert 0.08 < long.least < long.most < 0.4


def test_a_trial_that_is_disturbed_once_does_not_count_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = iter([0.05, 0.002, 0.03, *[0.002, 0.003] * 20])
    monkeypatch.setattr("attncem.judging.attacks.forecast._once", lambda action: next(durations))
    assert timed(lambda: None) == Seconds(0.002, 0.003)


def test_rates_grow_with_the_work() -> None:
    like = torch.zeros((), dtype=torch.float64)
    assert products(2e9, like).least > products(2e8, like).most / 2
    assert eigenvectors(3000, like).least > 10 * eigenvectors(300, like).most


class Counter:
    """A learner that counts its steps, in all copies together."""

    def __init__(self, losses: list[float], steps: list[int]) -> None:
        self.steps_per_epoch, self.losses, self.steps = 7, losses, steps

    def step(self, rate: float) -> None:
        self.steps[0] += 1

    def validate(self) -> tuple[float, float]:
        return (loss := self.losses.pop(0)), loss


@pytest.mark.parametrize(("epochs", "most", "anneal"), [(3.0, 24.0, 0.5), (2.5, 11.0, 0.3), (4.0, 7.0, 1.0), (1, 2, 1)])
def test_steps_are_those_of_the_loop(epochs: float, most: float, anneal: float) -> None:
    budget = BudgetOptions(epochs=epochs, max_epochs=most, anneal=anneal)
    counted = []
    for losses in ([1.0] * 9, [0.5**n for n in range(9)]):
        trunk = Counter(losses, [0])
        until_converged(trunk, lambda one: one, budget, name="counter", num_parameters=0, progress=silent)
        counted.append(trunk.steps[0])
    assert steps_of(budget, 7) == tuple(counted)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (48.3, "48 s"), (119, "2 min"), (125, "2.1 min"), (9000, "2.5 h"), (1e6, "280 h")],
)
def test_durations_are_rounded(seconds: float, said: str) -> None:
    assert format_duration(seconds) == said


# an audit


def test_the_time_that_is_told_is_that_of_the_audit(small_run: Callable[..., Path], tmp_path: Path) -> None:
    rows = {"mean": {"name": "mean_image"}, "near": {"name": "nearest_neighbour"}, "ridge": {"name": "ridge"}}
    suite = suite_of({**rows, "decoder": DECODER})
    missed = []
    for number in range(3):  # other work on the machine may disturb one or the other
        case = Case(open_run(small_run("demo")), THREATS["train"])
        told, unknown = forecast(case, suite.rows)
        assert unknown == []
        started = time.perf_counter()
        audit(case.subject, suite, out=tmp_path / str(number), progress=silent)
        true = time.perf_counter() - started
        if told.least / 2 <= true <= 2 * told.most:
            return
        missed.append((told, true))
    pytest.fail(str(missed))


@pytest.fixture(scope="module")
def demo(small_run: Callable[..., Path]) -> Case:
    """A small run of the demo, which no test may change."""
    return Case(open_run(small_run("demo")), THREATS["train"])


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_knows_its_time_or_that_it_does_not(demo: Case, name: str) -> None:
    attack = ATTACKS[name]()
    if "generator" in attack.needs:
        assert forecast(demo, {name: attack.options})[1] == [], "that it is not applicable is known"
        return
    told = attack.forecast(demo.oracle(attack, 0, own=50), len(demo.auxiliary), len(demo.x))
    assert told is None or 0 < told.least <= told.most
    if name in ("decoder", "ridge", "nearest_neighbour", "optimisation", "published"):
        assert told is not None


def test_larger_budgets_and_more_images_take_longer(demo: Case) -> None:
    short, long = (ATTACKS["decoder"](DecoderOptions(epochs=epochs, max_epochs=4 * epochs)) for epochs in (2, 20))
    trial = demo.oracle(short, 0, own=50)
    found = [attack.forecast(trial, own, 100) for attack, own in ((short, 500), (long, 500), (long, 5000))]
    assert all(found)
    few, more, most = cast(list[Seconds], found)
    assert 2 * few.least < more.least < most.least / 2
    assert 2 * few.most < more.most < most.most / 2


def test_it_is_told_once_and_before_the_first_row(small_run: Callable[..., Path], tmp_path: Path) -> None:
    listener, suite = Listener(), suite_of({"grey": {"name": "grey"}, "ridge": {"name": "ridge"}})
    audit(small_run("demo"), suite, out=tmp_path, progress=listener)
    assert listener.said[0].startswith("audit demo-gated: about ")
    assert len(listener.forecasts) == 1
    again = Listener()
    audit(small_run("demo"), suite, out=tmp_path, progress=again)
    assert again.forecasts == [], "nothing is left to do"


def test_a_row_of_which_nothing_is_known_is_named(small_run: Callable[..., Path]) -> None:
    case, listener = Case(open_run(small_run("demo")), THREATS["train"]), Listener()
    foretell(case, {"grey": GreyOptions(), "members": MembershipOptions()}, listener)
    (said,) = listener.said
    assert said.startswith("audit demo-gated: at least ")
    assert said.endswith(" on this CPU; unknown for members")


def test_a_trial_that_fails_costs_nothing_but_its_number(
    small_run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(ATTACKS["ridge"], "forecast", broken)
    case = Case(open_run(small_run("demo")), THREATS["train"])
    assert forecast(case, {"grey": GreyOptions(), "ridge": RidgeOptions()})[1] == ["ridge"]


def test_a_row_that_is_not_applicable_takes_no_time(small_run: Callable[..., Path]) -> None:
    case = Case(open_run(small_run("demo")), THREATS["no_access"])
    alone, unknown = forecast(case, {"white box": OptimisationOptions()})
    assert unknown == []
    assert alone.most < 1, "the features of the own images"


def test_nothing_is_tried_on_a_gpu_or_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = cast(Case, SimpleNamespace(subject=SimpleNamespace(device=torch.device("cuda"))))
    cpu = cast(Case, SimpleNamespace(subject=SimpleNamespace(device=torch.device("cpu"))))
    listener = Listener()
    foretell(gpu, {"grey": GreyOptions()}, listener)
    foretell(cpu, {"grey": GreyOptions()}, silent)
    foretell(cpu, {}, listener)
    assert listener.said == []


@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_the_numbers_are_the_same_with_and_without_it(
    small_run: Callable[..., Path], tmp_path: Path, noise: str
) -> None:
    run = small_run("demo", **{"channel.noise": noise})
    rows = {"ridge": {"name": "ridge"}, "decoder": {**DECODER, "epochs": 1, "max_epochs": 1}}
    found = [
        audit(run, suite_of(rows), out=tmp_path / name, progress=progress)
        for name, progress in (("told", Listener()), ("silent", silent))
    ]
    for name in rows:
        assert found[0].row(name).scores == found[1].row(name).scores


def test_the_time_left_is_that_of_the_rows_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(forecasting.time, "monotonic", lambda: now)
    schedule = Schedule({"ridge": Seconds(1, 3), "decoder": Seconds(1000, 2000), "members": None}, spent=50.0)
    assert schedule.numbers() == {LEFT: 1502.0, SPENT: 50.0}
    now = 2.0
    schedule.end("ridge")
    lefts = {}
    for now in (2.0, 502.0, 1002.0, 1502.0, 2002.0, 4002.0):
        lefts[now] = schedule.numbers()[LEFT]
    assert lefts == {2.0: 1500, 502.0: 1000, 1002.0: 500, 1502.0: 250, 2002.0: 100, 4002.0: 200}, "a guess past its end"
    schedule.end("decoder")
    assert math.isnan(schedule.numbers()[LEFT]), "no forecast tells how long members takes"
    schedule.end("members")
    assert schedule.numbers() == {LEFT: 0.0, SPENT: 4052.0}


def test_workers_share_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(forecasting.time, "monotonic", lambda: now)
    schedule = Schedule({name: Seconds(100, 100) for name in "abcd"}, workers=2)
    assert schedule.numbers()[LEFT] == 200
    now = 60.0
    assert schedule.numbers()[LEFT] == (40 + 40 + 100 + 100) / 2
    for name in "ab":
        schedule.end(name)
    now = 120.0
    schedule.end("d")
    assert schedule.numbers()[LEFT] == 40, "c started when a ended"


def test_every_report_of_an_audit_holds_its_time_left(small_run: Callable[..., Path], tmp_path: Path) -> None:
    """Of rows too: a bar must not take a floor and a decoder for equally long."""
    reports = []

    class Numbers(Listener):
        def __call__(self, stage: str, done: float, total: float, numbers: Mapping[str, float]) -> None:
            reports.append((stage, numbers[LEFT], numbers[SPENT]))

    rows = {"grey": {"name": "grey"}, "decoder": {**DECODER, "epochs": 1, "max_epochs": 1}}
    audit(small_run("demo"), suite_of(rows), out=tmp_path, progress=Numbers())
    assert any(stage.startswith("audit demo-gated: decoder: ") for stage, _, _ in reports)
    first, second, *_, last = [report for report in reports if report[0] == "audit demo-gated"]
    assert second[1] > 0.5 * first[1] > last[1] == 0, "the floor took no time, the decoder all of it"
    assert last[2] >= first[2]


@pytest.mark.parametrize("probe", [Reidentification(candidates=1000), LabelLeakage()], ids=["identity", "label"])
def test_the_time_of_the_quick_probes_is_told(small_run: Callable[..., Path], probe: Probe) -> None:
    case = Case(open_run(small_run("demo")), THREATS["train"])
    seconds, unknown = forecast(case, {"probe": probe.options})
    assert unknown == [] and 0 < seconds.least <= seconds.most
    started = time.perf_counter()
    probe.score(case, seed=0)
    assert time.perf_counter() - started < 20 * seconds.most + 0.5


def test_an_attack_need_not_know_its_time() -> None:
    assert Attack.forecast(cast(Attack, None), cast(Any, None), 1, 1) is None
