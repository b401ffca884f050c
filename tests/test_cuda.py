"""What only a GPU can show; skipped without one."""

import pytest
import torch

import attncem
from attncem.config.attacks import DecoderOptions, GreyOptions, NearestNeighbourOptions, RidgeOptions, Suite
from attncem.progress import silent
from attncem.surrogates import SURROGATES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

TINY = ["training.epochs=2", "device=cuda"]
SMALL_SUITE = Suite(
    "small",
    1,
    "a little of each kind",
    (
        ("grey", GreyOptions()),
        ("nearest neighbour", NearestNeighbourOptions()),
        ("ridge", RidgeOptions()),
        ("decoder", DecoderOptions(epochs=1, max_epochs=2)),
    ),
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


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", SURROGATES)
def test_surrogate_never_waits_for_the_host(name: str) -> None:
    surrogate, (z, y) = fitted(name), batch()
    z.requires_grad_()
    total_loss(surrogate, z, y).backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        total_loss(surrogate, z, y).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


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
    monkeypatch.setattr("attncem.surrogates.recompute.LARGE", 0)
    test_surrogate_can_be_captured_in_a_graph(name)


@pytest.mark.parametrize("name", SURROGATES)
def test_cuda_equals_cpu(name: str) -> None:
    surrogate, (z, y) = fitted(name), batch()
    on_gpu = surrogate(z, y).loss.cpu()
    on_cpu = surrogate.cpu()(z.cpu(), y.cpu()).loss
    torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("config", ["demo-none", "demo-kmeans", "demo"])
def test_train_audit_and_report_on_the_gpu(config: str, tmp_path) -> None:
    run = attncem.train(config, TINY, out=tmp_path / "run", report=silent)
    assert run.manifest["status"] == "finished"
    result = attncem.audit(run, SMALL_SUITE, report=silent)
    assert result.device != "cpu"
    assert result.accuracy.mean > 0.3
    ridge = next(row for row in result.attacks if row.method == "ridge")
    assert ridge.mse.mean < result.attacks[0].mse.mean
    assert attncem.report([run], out=tmp_path / "report.html").exists()


def test_bf16_training_stays_close_to_float32(tmp_path) -> None:
    accuracy = {}
    for precision in ("32-true", "bf16-mixed"):
        overrides = [*TINY, f"training.precision={precision}", "training.epochs=4"]
        run = attncem.train("demo-none", overrides, out=tmp_path / precision, report=silent)
        accuracy[precision] = run.manifest["best"]["validation_accuracy"]
    assert abs(accuracy["32-true"] - accuracy["bf16-mixed"]) < 0.08
