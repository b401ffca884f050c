"""What only a GPU can show; skipped without one."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attncem
from attncem.base.progress import silent
from attncem.base.types import DatasetSpec
from attncem.config.options.attacks import (
    DecoderOptions,
    FamilyOptions,
    FlowOptions,
    GanOptions,
    GreyOptions,
    InformedOptions,
    NearestNeighbourOptions,
    PublishedOptions,
    RidgeOptions,
)
from attncem.config.options.probes import LabelLeakageOptions, MembershipOptions, ReidentificationOptions
from attncem.config.options.suites import Suite
from attncem.judging.attacks.decoder import DecoderTraining
from attncem.models.channels import CHANNELS
from attncem.models.front_ends import FRONT_ENDS
from attncem.training.capture import WARM_STEPS, Step, no_host_reads
from attncem.training.penalties import PENALTIES
from attncem.training.surrogates import SURROGATES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TINY = ["training.epochs=2", "device=cuda"]
SMALL_SUITE = Suite(
    name="small",
    version=1,
    meaning="a little of each kind",
    rows={
        "grey": GreyOptions(),
        "nearest neighbour": NearestNeighbourOptions(),
        "ridge": RidgeOptions(),
        "decoder": DecoderOptions(epochs=1, max_epochs=2),
        "gan": GanOptions(epochs=2, decoder_epochs=1, critic_steps=2),
        "family": FamilyOptions(epochs=1, max_epochs=1, widths=(8, 16), fractions=(0.1, 1)),
        "informed": InformedOptions(epochs=1, max_epochs=1),
        "flow": FlowOptions(epochs=1, max_epochs=1, width=16, samples=2, steps=2),
        "published": PublishedOptions(epochs=2, batch_size=64),
        "re-identification": ReidentificationOptions(candidates=200),
        "label leakage": LabelLeakageOptions(labels=(4, 16), draws=2),
        "membership": MembershipOptions(),
    },
)


def batch(num_classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    z = torch.rand(128, 8, 8, 8, device="cuda", generator=generator)
    y = torch.arange(128, device="cuda") % num_classes
    return z, y


def fitted(name: str) -> attncem.Surrogate:
    torch.manual_seed(0)
    surrogate = attncem.build_surrogate(name, feature_shape=(8, 8, 8), num_classes=10, noise_std=0.1).cuda()
    surrogate(*batch())  # the hybrid marks classes by what it has seen
    surrogate.refresh([batch()])
    return surrogate.eval()  # slots start without noise: the same numbers every time


def total_loss(surrogate: attncem.Surrogate, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    output = surrogate(z, y)
    return output.loss if output.fit_loss is None else output.loss + output.fit_loss


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogate_never_waits_for_the_host(name: str) -> None:
    surrogate, (z, y) = fitted(name), batch()
    z.requires_grad_()
    total_loss(surrogate, z, y).backward()
    torch.cuda.synchronize()
    with no_host_reads():
        total_loss(surrogate, z, y).backward()


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogate_can_be_captured_in_a_graph(name: str) -> None:
    surrogate, (z, y) = fitted(name), batch()
    z.requires_grad_()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            z.grad = None
            total_loss(surrogate, z, y).backward()
    torch.cuda.synchronize()
    z.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = total_loss(surrogate, z, y)
        loss.backward()
    with torch.no_grad():
        z.mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    expected = total_loss(surrogate, z.detach(), y)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


REMEMBERING = [name for name, kind in SURROGATES.items() if "memory" in kind.options_type.model_fields]


def remembering(name: str) -> attncem.Surrogate:
    torch.manual_seed(0)
    sizes = {"feature_shape": (8, 8, 8), "num_classes": 100, "noise_std": 0.1}
    surrogate = attncem.build_surrogate(name, **sizes, memory={"per_class": 2}).cuda()
    surrogate.refresh([batch(100)])
    return surrogate


@pytest.mark.parametrize("name", REMEMBERING)
def test_a_memory_is_filled_by_a_captured_step(name: str) -> None:
    surrogate, (z, y) = remembering(name), batch(100)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            total_loss(surrogate, z, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with no_host_reads(), torch.cuda.graph(graph):
        skipped = surrogate(z, y).diagnostics["skipped"]
    memory = surrogate.memory
    assert memory is not None
    before = int(memory.step)
    z.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert int(memory.step) == before + 1
    assert float(skipped) < 1e-6
    newest = memory.features[int(y[-1])]
    assert bool((newest == z[-1].flatten()).all(1).any())


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogate_keeps_at_most_100_mb_at_512x7x7(name: str) -> None:
    surrogate = attncem.build_surrogate(name, feature_shape=(512, 7, 7), num_classes=10, noise_std=0.1).cuda()
    z, y = torch.rand(128, 512, 7, 7, device="cuda"), torch.arange(128, device="cuda") % 10
    with torch.no_grad():
        surrogate(z, y)
    surrogate.refresh([(z, y)])
    z.requires_grad_()
    before = torch.cuda.memory_allocated()
    loss = total_loss(surrogate, z, y)
    assert torch.cuda.memory_allocated() - before <= 100e6
    loss.backward()


@pytest.mark.parametrize("name", ["gated", "slot", "hybrid"])
def test_recomputing_can_be_captured_in_a_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncem.training.surrogates.recompute.LARGE", 0)
    test_surrogate_can_be_captured_in_a_graph(name)


@pytest.mark.parametrize("name", SURROGATES)
def test_cuda_equals_cpu(name: str) -> None:
    surrogate, (z, y) = fitted(name), batch()
    on_gpu = surrogate(z, y).loss.cpu()
    on_cpu = surrogate.cpu()(z.cpu(), y.cpu()).loss
    torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("config", ["demo-none", "demo-kmeans", "demo"])
def test_train_audit_and_report_on_the_gpu(config: str, tmp_path) -> None:
    run = attncem.train(config, TINY, out=tmp_path / "run", progress=silent)
    assert run.manifest["status"] == "finished"
    result = attncem.audit(run, SMALL_SUITE, progress=silent)
    assert result.plan.device != "cpu"
    assert result.accuracy.mean > 0.3
    ridge = next(row for row in result.attacks if row.method == "ridge")
    assert ridge.mse.mean < result.attacks[0].mse.mean
    assert {row.outcome for row in result.rows} == {"ok"}
    assert result.row("re-identification").scores["rank_1"].mean > 0.5
    assert attncem.report([run], out=tmp_path / "report.html").exists()


def test_attacks_beside_each_other_on_the_gpu(tmp_path: Path) -> None:
    run = attncem.train("demo-none", TINY, out=tmp_path / "run", progress=silent)
    rows: dict[str, Any] = {"ridge": {"name": "ridge"}, "decoder": {"name": "decoder", "epochs": 1, "max_epochs": 2}}
    suite = {"name": "beside", "version": 1, "meaning": "beside each other", "rows": rows}
    alone = attncem.audit(run, suite, out=tmp_path / "alone", progress=silent)
    beside = attncem.audit(run, suite, out=tmp_path / "beside", workers=2, progress=silent)
    assert {row.outcome for row in beside.rows} == {"ok"} and beside.plan.device == alone.plan.device != "cpu"
    for one, other in zip(alone.attacks, beside.attacks, strict=True):
        assert other.mse.mean == pytest.approx(one.mse.mean, rel=0.02)


TRAINED_ROWS: dict[str, dict[str, Any]] = {
    "small": {"name": "decoder", "epochs": 1, "max_epochs": 2},
    "global": {"name": "decoder", "size": "global", "epochs": 1, "max_epochs": 2, "precision": "bf16-mixed"},
    "informed": {"name": "informed", "epochs": 1, "max_epochs": 2},
    "flow": {"name": "flow", "epochs": 1, "max_epochs": 1, "width": 16, "samples": 2, "steps": 2},
    "published": {"name": "published", "epochs": 2, "batch_size": 64},
}


@pytest.mark.parametrize("row", TRAINED_ROWS)  # one a test: compiling one kind takes up to minutes
def test_decoders_are_compiled_where_that_is_asked_for(
    row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = attncem.train("demo", TINY, out=tmp_path / "run", progress=silent)
    suite = {"name": "compiled", "version": 1, "meaning": "compiled", "rows": {row: TRAINED_ROWS[row]}}
    captured = attncem.audit(run, suite, out=tmp_path / "captured", progress=silent)
    modes, stepped = dict[int, str](), DecoderTraining.step

    def step(training: DecoderTraining, rate: float) -> None:
        stepped(training, rate)
        modes[id(training.recorded)] = training.recorded.mode

    monkeypatch.setattr(DecoderTraining, "step", step)
    monkeypatch.setenv("ATTNCEM_COMPILE_FROM", "0")
    compiled = attncem.audit(run, suite, out=tmp_path / "compiled", progress=silent)
    assert [row.reason for row in compiled.rows] == [""]
    assert set(modes.values()) == {"compiled"}
    (one,), (other,) = captured.attacks, compiled.attacks
    assert other.mse.mean == pytest.approx(one.mse.mean, rel=0.05)


@pytest.mark.parametrize("noise", ["fresh", "keyed"])
def test_rows_that_ask_again_on_the_gpu(noise: str, tmp_path) -> None:
    run = attncem.train("demo-none", [*TINY, f"channel.0.noise={noise}"], out=tmp_path / "run", progress=silent)
    often = {"ridge x4": {"name": "ridge", "releases": 4}, "moved": {"name": "ridge", "releases": 4, "jitter": 1}}
    rows = {"ridge": {"name": "ridge"}, **often}
    result = attncem.audit(run, {"name": "again", "version": 1, "meaning": "again", "rows": rows}, progress=silent)
    assert {row.outcome for row in result.rows} == {"ok"}
    assert [item.helps for item in result.averaging] == [noise == "fresh", True]
    assert result.plan.units is not None
    errors = [rung.mse for rung in result.plan.units.components]
    assert errors == sorted(errors, reverse=True)


def test_bf16_training_stays_close_to_float32(tmp_path) -> None:
    accuracy = {}
    for precision in ("32-true", "bf16-mixed"):
        overrides = [*TINY, f"training.precision={precision}", "training.epochs=4"]
        run = attncem.train("demo-none", overrides, out=tmp_path / precision, progress=silent)
        accuracy[precision] = run.manifest["best"]["validation_accuracy"]
    assert abs(accuracy["32-true"] - accuracy["bf16-mixed"]) < 0.08


# captured steps


def losses(path: Path, *overrides: str, config: str = "demo", **given: Any) -> tuple[list[float], attncem.RunDirectory]:
    run = attncem.train(config, [*TINY, "training.log_every=1", *overrides], out=path, progress=silent, **given)
    return [line["ce"] for line in run.records() if line["kind"] == "train"], run


MODES = {"capture": "captured", "compile_surrogate": "surrogate compiled", "compile": "compiled"}
"""What `training.fast` asks for, and what a manifest then says."""


@pytest.mark.parametrize("fast", ["capture", "compile"])
@pytest.mark.parametrize("config", ["demo-none", "demo-kmeans", "demo"])
def test_fast_steps_train_as_plain_ones(config: str, fast: str, tmp_path: Path) -> None:
    plain, run = losses(tmp_path / "plain", "training.fast=off", config=config)
    assert run.manifest["steps"] == "plain"
    quick, run = losses(tmp_path / "fast", f"training.fast={fast}", config=config)
    assert run.manifest["steps"] == MODES[fast], run.manifest["step_problems"]
    assert quick[:6] == pytest.approx(plain[:6], rel=1e-3), "the same steps from the same start, the same noise"
    assert quick[-1] == pytest.approx(plain[-1], rel=0.2), "rounding drifts apart slowly"


@pytest.mark.parametrize("fast", ["capture", "compile"])
@pytest.mark.parametrize(("precision", "near"), [("32-true", 1e-3), ("bf16-mixed", 0.05)])
def test_fast_steps_of_a_lean_client_train_as_plain_ones(
    precision: str, near: float, fast: str, tmp_path: Path
) -> None:
    lean = ("model.name=lean", "model.macs=1.2e6", f"training.precision={precision}")
    plain, _ = losses(tmp_path / "plain", *lean, "training.fast=off")
    quick, run = losses(tmp_path / "fast", *lean, f"training.fast={fast}")
    modes = ("captured",) if fast == "capture" else ("compiled", "captured")  # compiled steps may round too differently
    assert run.manifest["steps"] in modes, run.manifest["step_problems"]
    assert quick[:6] == pytest.approx(plain[:6], rel=near)
    assert quick[-1] == pytest.approx(plain[-1], rel=0.2)


@pytest.mark.parametrize("fast", ["capture", "compile_surrogate"])
@pytest.mark.parametrize("name", ["gated", "slot", "hybrid"])
def test_a_surrogate_beside_the_networks_learns_as_one_before_them(name: str, fast: str, tmp_path: Path) -> None:
    """Its penalty and its own loss run on streams of their own: what one reads too early would show."""
    own = {"gated": "effective_samples", "slot": "assign_temp", "hybrid": "slot_active"}[name]
    options = (f"surrogate.name={name}", "training.surrogate_lr=0.01", "training.penalty_weight=0.5")
    records = []
    for way in ("off", fast):
        _, run = losses(tmp_path / way, *options, f"training.fast={way}", config="demo-none")
        records.append([line for line in run.records() if line["kind"] == "train"])
    assert run.manifest["steps"] == MODES[fast], run.manifest["step_problems"]
    for figure in ("ce", "rob_loss", "plain_loss", own):
        plain, quick = ([line[figure] for line in lines] for lines in records)
        assert quick[:8] == pytest.approx(plain[:8], rel=2e-3, abs=1e-6), figure
        assert quick[-1] == pytest.approx(plain[-1], rel=0.2, abs=1e-3), figure


@pytest.mark.parametrize("name", [name for name in FRONT_ENDS if name != "none"])
def test_front_ends_equal_the_cpu_s_and_are_captured_and_compiled(name: str, tmp_path: Path) -> None:
    spec = DatasetSpec("made_up", (3, 32, 32), 10, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3), tuple("abcdefghij"))
    front_end = FRONT_ENDS[name](FRONT_ENDS[name].options_type(), spec)
    x = torch.rand(8, 3, 32, 32)
    on_gpu = copy.deepcopy(front_end).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = on_gpu(x.cuda())
    torch.testing.assert_close(out.cpu(), front_end(x), atol=1e-4, rtol=1e-4)
    for fast in ("capture", "compile"):
        given = [f"model.front_end.name={name}", f"training.fast={fast}", "training.precision=bf16-mixed"]
        run = attncem.train("demo-none", [*TINY, *given], out=tmp_path / fast, progress=silent)
        assert run.manifest["steps"] != "plain", run.manifest["step_problems"]


@pytest.mark.parametrize("name", [name for name, kind in CHANNELS.items() if kind.options_type.adds_noise])
def test_channels_with_noise_are_captured_and_judged(name: str, tmp_path: Path) -> None:
    run = attncem.train("demo-none", [*TINY, f"channel={{name: {name}}}"], out=tmp_path / "run", progress=silent)
    assert run.manifest["steps"] == "captured", run.manifest["step_problems"]
    result = attncem.audit(run, SMALL_SUITE, progress=silent)
    assert {row.outcome for row in result.rows} == {"ok"}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_are_captured(name: str, tmp_path: Path) -> None:
    plain, _ = losses(tmp_path / "plain", "training.fast=off", f"penalties.name={name}", config="demo-kmeans")
    quick, run = losses(tmp_path / "fast", "training.fast=capture", f"penalties.name={name}", config="demo-kmeans")
    assert run.manifest["steps"] == "captured", run.manifest["step_problems"]
    assert quick[:6] == pytest.approx(plain[:6], rel=1e-3)
    assert quick[-1] == pytest.approx(plain[-1], rel=0.2)


@pytest.mark.parametrize("prior", ["learned", "class"])
def test_a_learned_prior_is_captured(prior: str, tmp_path: Path) -> None:
    options, rates = ("penalties.name=vib", f"penalties.prior={prior}"), []
    for fast, mode in (("off", "plain"), ("capture", "captured")):
        _, run = losses(tmp_path / fast, f"training.fast={fast}", *options, config="demo-none")
        assert run.manifest["steps"] == mode, run.manifest["step_problems"]
        rates.append([line["vib_rate"] for line in run.records() if line["kind"] == "train"])
    assert rates[1][:6] == pytest.approx(rates[0][:6], rel=1e-3)
    assert rates[1][-1] == pytest.approx(rates[0][-1], rel=0.2)


@pytest.mark.parametrize("fast", ["capture", "compile"])
def test_fast_steps_with_smoothed_labels_train_as_plain_ones(fast: str, tmp_path: Path) -> None:
    plain, _ = losses(tmp_path / "plain", "training.fast=off", "training.label_smoothing=0.1", config="demo-none")
    quick, run = losses(tmp_path / "fast", f"training.fast={fast}", "training.label_smoothing=0.1", config="demo-none")
    assert run.manifest["steps"] == MODES[fast], run.manifest["step_problems"]
    assert quick[:6] == pytest.approx(plain[:6], rel=2e-3)
    assert quick[-1] == pytest.approx(plain[-1], rel=0.2)


def test_a_penalty_that_skips_batches_is_trained_plainly(tmp_path: Path) -> None:
    _, run = losses(tmp_path / "run", "penalties.name=adversarial", "penalties.every=2", config="demo-none")
    assert run.manifest["steps"] == "plain"


@pytest.mark.parametrize("fast", ["capture", "compile"])
@pytest.mark.parametrize(
    "few",
    [["surrogate.memory.per_class=2"], ["training.batches.name=balanced", "training.batches.samples_per_class=2"]],
)
def test_fast_steps_on_small_batches(few: list[str], fast: str, tmp_path: Path) -> None:
    """A memory is part of what is put back after the trial of a recording."""
    overrides = [*few, "training.batch_size=16", "training.epochs=2"]
    plain, _ = losses(tmp_path / "plain", "training.fast=off", *overrides, config="demo")
    quick, run = losses(tmp_path / "quick", f"training.fast={fast}", *overrides, config="demo")
    assert run.manifest["steps"] == MODES[fast], run.manifest["step_problems"]
    assert quick[:6] == pytest.approx(plain[:6], rel=1e-3)
    assert [record for record in run.records() if record["kind"] == "train"][-1]["skipped"] < 0.05


class ReadsTheHost(nn.Module):
    """Scales its input by a number it has read from the device."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        scale = 1.0 if float(x.mean()) > 2 else 0.5
        z: Tensor = self.network(x * scale)
        return z


def test_a_network_that_cannot_be_captured_is_trained_plainly(tmp_path: Path) -> None:
    encoder = ReadsTheHost(nn.Sequential(nn.Conv2d(1, 4, 3, stride=4), nn.BatchNorm2d(4), nn.Sigmoid()))
    server = nn.Sequential(nn.Flatten(), nn.LazyLinear(10))
    server(encoder(torch.zeros(2, 1, 28, 28)))
    ce, run = losses(tmp_path / "run", "training.epochs=6", config="demo-none", modules=(encoder, server))
    assert run.manifest["steps"] == "plain"
    assert "not captured" in run.manifest["step_problems"][0]
    assert ce[-1] < 0.8 * ce[0]


def a_step(function: Any, weight: nn.Parameter, **options: Any) -> Step:
    return Step(function, state=lambda: [weight], watched=[weight], **options)


def test_a_recorded_step_draws_the_numbers_a_plain_one_draws() -> None:
    drawn = {}
    for record in (False, True):
        weight = nn.Parameter(torch.zeros(4, device="cuda"))
        generator = torch.Generator("cuda").manual_seed(1)
        torch.manual_seed(2)

        def noisy(x: Tensor, weight: nn.Parameter = weight, generator: torch.Generator = generator) -> Tensor:
            noise = torch.empty_like(x).normal_(generator=generator)
            with torch.no_grad():
                weight += x + noise + torch.nn.functional.dropout(x, 0.5)
            return noise

        step = a_step(noisy, weight, generators=[generator], record=record)
        outputs = [step(torch.full((4,), float(number), device="cuda")).clone() for number in range(WARM_STEPS + 6)]
        generator.manual_seed(5)  # as at the start of an epoch
        outputs.append(step(torch.ones(4, device="cuda")).clone())
        assert step.mode == ("captured" if record else "plain"), step.problems
        drawn[record] = torch.stack([*outputs, weight.detach()])
    torch.testing.assert_close(drawn[True], drawn[False])


def test_a_recorded_step_that_does_something_else_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(4, device="cuda"))
    calls = []

    def counts(x: Tensor) -> None:
        calls.append(1)
        with torch.no_grad():
            weight.add_(x * len(calls))  # a number of the host's, frozen by a recording

    step = a_step(counts, weight)
    for _ in range(WARM_STEPS):
        step(torch.ones(4, device="cuda"))
    assert weight[0] == 6
    step(torch.ones(4, device="cuda"))
    assert step.mode == "plain"
    assert "differs" in step.problems[0]
    assert weight[0] == 10, "the plain step counts, the recorded one was undone"


def test_a_compiled_step_that_fails_is_captured_uncompiled() -> None:
    weight = nn.Parameter(torch.zeros(4, device="cuda"))

    def add(x: Tensor) -> None:
        with torch.no_grad():
            weight.add_(x)

    def broken(x: Tensor) -> None:
        raise RuntimeError("no compiler here")

    step = a_step(add, weight, faster={"compiled": broken})
    for _ in range(WARM_STEPS + 3):
        step(torch.ones(4, device="cuda"))
    assert step.mode == "captured"
    assert "no compiler here" in step.problems[0]
    assert weight.tolist() == [WARM_STEPS + 3.0] * 4


def test_predict_and_explain(tmp_path: Path) -> None:
    run = attncem.train(
        "demo", [*TINY, "surrogate.variant=002", "training.warmup_epochs=0"], out=tmp_path / "run", progress=silent
    )
    there, here = (attncem.predict(run, "test:3", device=device).predictions[0] for device in ("cuda", "cpu"))
    assert (there.release.shape, there.release.bytes) == (here.release.shape, here.release.bytes)
    assert sum(candidate.probability for candidate in there.top) <= 1 + 1e-5
    found = attncem.explain(run, "test:3", progress=silent)
    assert found.reference.attention is not None
    assert found.reference.attention + sum(found.reference.attentions) == pytest.approx(1, abs=1e-4)
    on_cpu = attncem.explain(run, "test:3", device="cpu", progress=silent)
    assert found.reference.attention == pytest.approx(on_cpu.reference.attention, rel=1e-2)
    assert [gate.mean for gate in found.reference.gates] == pytest.approx(
        [gate.mean for gate in on_cpu.reference.gates], rel=1e-2
    )
