"""Every penalty × its options against one contract; a new one is tested by adding a line to CASES."""

from __future__ import annotations

import copy
import math
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from attncem.base.progress import silent
from attncem.base.types import ConfigError, StepView
from attncem.config.loading.load import load_config
from attncem.config.options.channels import GaussianOptions
from attncem.data.specs import DATASETS
from attncem.models.channels import build_channel
from attncem.models.networks import build_halves
from attncem.models.split import SplitModel, count_parameters
from attncem.records.metrics import mse, ssim
from attncem.records.runs import RunDirectory
from attncem.training.engine import Engine, Trainable
from attncem.training.penalties import PENALTIES, Penalty
from attncem.training.penalties.adversarial import AdversarialDecoder
from attncem.training.penalties.distance_correlation import corrected_distance_correlation, distance_correlation
from attncem.training.penalties.vib import VariationalBottleneck, gaussian_rate
from attncem.training.train import train
from attncem.training.trainer import Trainer

SHAPE, IMAGE, EPOCHS = (4, 4, 4), (1, 16, 16), 8
CLASSES, NOISE = 10, 0.1
SMALL = {"blocks": 0, "width": 8}
CASES: dict[str, list[dict[str, Any]]] = {
    "distance_correlation": [{}, {"reads": "released"}, {"weight": 2.0, "warmup_epochs": 1}, {"estimate": "corrected"}],
    "adversarial": [
        SMALL,
        {**SMALL, "loss": "mse"},
        {**SMALL, "reads": "released", "threshold": 0.0},
        {**SMALL, "steps": 2, "threshold": -1.0},
        {**SMALL, "every": 3, "loss": "mse", "threshold": 0.5},
        {"blocks": 1, "width": 8, "warmup_epochs": 0, "lr_milestones": []},
    ],
    "vib": [{}, {"prior": "learned"}, {"prior": "class", "weight": 0.1}, {"warmup_epochs": 1, "lr": 0.1}],
}
PAIRS = [(name, options) for name, cases in CASES.items() for options in cases]
READS = [
    (name, options, reads)
    for name, options in PAIRS
    for reads in get_args(PENALTIES[name].options_type.model_fields["reads"].annotation)
]
STATIC = [(name, options) for name, options in PAIRS if options.get("every", 1) == 1]


def label(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items()) or "default"
    return str(value)


every_case = pytest.mark.parametrize(("name", "options"), PAIRS, ids=label)
static_cases = pytest.mark.parametrize(("name", "options"), STATIC, ids=label)


def make(
    name: str,
    options: dict[str, Any],
    *,
    shape: tuple[int, ...] = SHAPE,
    epoch: int = 1,
    precision: Any = "32-true",
    image: tuple[int, int, int] = IMAGE,
) -> Penalty:
    """A penalty in its second epoch, when every case is at work."""
    torch.manual_seed(0)
    parsed = load_config({"penalties": {"name": name, **options}}).config.penalties[0]
    engine = Engine(torch.device("cpu"), precision)
    facts = {"num_classes": CLASSES, "noise_std": NOISE}
    penalty = PENALTIES[name](parsed, feature_shape=shape, image_shape=image, engine=engine, **facts)
    penalty.begin_epoch(epoch, EPOCHS)
    return penalty


def batch(count: int = 10, *, shape: tuple[int, ...] = SHAPE, seed: int = 0, dtype: Any = torch.float32) -> StepView:
    """Features that tell a good deal about the images, and a noisy release of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.nn.functional.interpolate(
        torch.rand(count, 1, 4, 4, generator=generator), size=IMAGE[1:], mode="bilinear"
    )
    law = torch.Generator().manual_seed(1)
    mix = torch.randn(IMAGE[1] * IMAGE[2], math.prod(shape), generator=law) / 8
    z = ((x.flatten(1) - 0.5) @ mix).sigmoid().view(count, *shape).to(dtype).requires_grad_()
    noise = 0.05 * torch.randn(z.shape, generator=generator)
    return StepView(x, torch.arange(count) % 3, z, z + noise.to(dtype), torch.zeros(count, 3))


def gradient(penalty: Penalty, step: StepView) -> tuple[Tensor, Tensor]:
    """The term and its gradient for the clean z."""
    term, _ = penalty(step)
    (found,) = torch.autograd.grad(term, step.z)
    return term.detach(), found


def state_of(penalty: Penalty) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in penalty.state_dict().items()}


def test_no_penalty_is_left_out() -> None:
    assert set(CASES) == set(PENALTIES)
    for name, penalty in PENALTIES.items():
        assert penalty.options_type.model_fields["name"].default == name


@every_case
@pytest.mark.parametrize("shape", [SHAPE, (16, 3), (7,)])
@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, "32-true"), (torch.bfloat16, "bf16-mixed")])
def test_term_and_gradient_are_finite_and_reach_z(
    name: str, options: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype, precision: str
) -> None:
    penalty = make(name, options, shape=shape, precision=precision)
    step = batch(shape=shape, dtype=dtype)
    penalty.inner_step(step)
    term, diagnostics = penalty(step)
    assert term.shape == () and term.dtype == torch.float32
    assert all(value.shape == () and value.isfinite() and not value.requires_grad for value in diagnostics.values())
    assert all(key.startswith(name) for key in diagnostics)
    (found,) = torch.autograd.grad(term, step.z)
    assert found.isfinite().all()
    assert bool(found.any()) == bool(term > 0)


@every_case
def test_the_term_is_active_somewhere(name: str, options: dict[str, Any]) -> None:
    """Below its threshold a term is nothing; above, its gradient reaches every sample."""
    penalty = make(name, {**options, **({"threshold": -1.0, "loss": "ssim"} if name == "adversarial" else {})})
    term, found = gradient(penalty, batch())
    assert term > 0
    assert found.flatten(1).any(1).all()


@every_case
def test_the_own_weights_get_no_gradient_and_do_not_change(name: str, options: dict[str, Any]) -> None:
    penalty = make(name, options)
    step = batch()
    penalty.inner_step(step)
    before = state_of(penalty)
    term, _ = penalty(step)
    term.backward()
    assert all(parameter.grad is None for parameter in penalty.parameters())
    assert all(torch.equal(value, before[key]) for key, value in penalty.state_dict().items())


@pytest.mark.parametrize(("name", "options", "reads"), READS, ids=label)
def test_it_looks_at_what_it_says(name: str, options: dict[str, Any], reads: str) -> None:
    penalty = make(name, {**options, "reads": reads})
    step = batch()
    other = StepView(
        step.x, step.y, *((step.z, 1 - step.released) if reads == "clean" else (1 - step.z, step.released)), step.y
    )
    penalty.inner_step(step)
    assert torch.equal(penalty(step)[0], penalty(other)[0])


def client_and_step() -> tuple[SplitModel, StepView]:
    spec, options = DATASETS["fashion_mnist_mini"], load_config("demo", {"model.width": 4}).config.model
    torch.manual_seed(3)
    encoder, server = build_halves(spec, options)
    model = SplitModel(encoder, build_channel([GaussianOptions()]), server).train()
    x = torch.rand(6, *spec.shape)
    z = model.encode(x)
    released = model.transmit(z, x)
    return model, StepView(x, torch.arange(6), z, released, model.predict(released))


@every_case
def test_the_inner_step_leaves_the_client_alone(name: str, options: dict[str, Any]) -> None:
    """Weights, gradients and running statistics of the client; and its graph is not used up."""
    model, step = client_and_step()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    penalty = make(name, options, shape=tuple(step.z.shape[1:]), image=tuple(step.x.shape[1:]))  # type: ignore[arg-type]
    penalty.inner_step(step)
    assert all(parameter.grad is None for parameter in model.parameters())
    (step.logits.sum() + penalty(step)[0]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@every_case
def test_the_order_of_samples_does_not_matter(name: str, options: dict[str, Any]) -> None:
    penalty, step = make(name, options), batch()
    order = torch.randperm(len(step.x), generator=torch.Generator().manual_seed(4))
    mixed = StepView(*(part.detach()[order] for part in (step.x, step.y, step.z, step.released, step.logits)))
    torch.testing.assert_close(penalty(step)[0].detach(), penalty(mixed)[0])


class NoHostReads(TorchDispatchMode):
    """Refuses operations that wait for a value, or whose result has a shape that depends on one."""

    forbidden = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal", "is_nonzero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masked = name == "index" and any(part is not None and part.dtype == torch.bool for part in args[1])
        assert not (masked or name.startswith(self.forbidden)), f"{name} waits for the host"
        return func(*args, **(kwargs or {}))


@static_cases
def test_nothing_waits_for_the_host(name: str, options: dict[str, Any]) -> None:
    penalty, step = make(name, options), batch()
    assert penalty.static
    with NoHostReads():
        for _ in range(2):
            penalty.inner_step(step)
            gradient(penalty, step)


def test_a_wait_for_the_host_is_found() -> None:
    """The checker itself."""
    with NoHostReads(), pytest.raises(AssertionError, match="waits for the host"):
        torch.ones(2).sum().item()
    with NoHostReads(), pytest.raises(AssertionError, match="waits for the host"):
        torch.ones(2)[torch.ones(2) > 0]


@every_case
def test_shapes_are_static(name: str, options: dict[str, Any]) -> None:
    """The term and its gradient without any values."""
    penalty, step = make(name, options), batch()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x, z = mode.from_tensor(step.x), mode.from_tensor(step.z.detach()).requires_grad_()
        term, found = gradient(penalty, StepView(x, mode.from_tensor(step.y), z, z, z))
        assert term.shape == () and found.shape == z.shape


@pytest.mark.parametrize(("name", "options"), [case for case in STATIC if len(case[1]) < 3], ids=label)
def test_every_step_does_the_same(name: str, options: dict[str, Any]) -> None:
    """Traced twice, the operations are the same: no branch on the host hides in it."""
    penalty, step = make(name, options), batch()

    def operations(epoch: int) -> list[str]:
        penalty.begin_epoch(epoch, EPOCHS)
        traced = make_fx(lambda z: penalty(StepView(step.x, step.y, z, z, step.logits))[0])(step.z.detach())
        return [str(node.target) for node in traced.graph.nodes]

    first = operations(0)
    penalty.inner_step(step)
    assert operations(EPOCHS - 1) == first


@every_case
def test_state_goes_round(name: str, options: dict[str, Any]) -> None:
    """A copy made from the state goes on as the original does, to the bit."""
    original, copied = make(name, options), make(name, options)
    for seed in range(3):
        original.inner_step(batch(seed=seed))
    trainables = [Trainable({"own": p}, p.optimizers) for p in (original, copied)]
    trainables[1].restore(copy.deepcopy(trainables[0].weights()), copy.deepcopy(trainables[0].optimizer_state()))
    for penalty in (original, copied):
        penalty.begin_epoch(2, EPOCHS)
        penalty.inner_step(batch(seed=7))
    assert torch.equal(original(batch(seed=8))[0], copied(batch(seed=8))[0])
    assert all(torch.equal(value, copied.state_dict()[key]) for key, value in original.state_dict().items())


@every_case
def test_warm_up(name: str, options: dict[str, Any]) -> None:
    penalty, step = make(name, options), batch()
    expected = 0.0 if penalty.options.warmup_epochs > 0 else penalty.options.weight
    penalty.begin_epoch(0, EPOCHS)
    assert float(penalty.get_buffer("weight")) == pytest.approx(expected)
    penalty.begin_epoch(1, EPOCHS)
    assert float(penalty.get_buffer("weight")) == pytest.approx(penalty.options.weight)
    term, _ = penalty(step)
    value, _ = penalty.evaluate(step.x, penalty.feature(step), step.y)
    torch.testing.assert_close(term, penalty.options.weight * value)


@every_case
def test_the_term_can_be_descended(name: str, options: dict[str, Any]) -> None:
    """Steps against the gradient on z alone lower the term."""
    limit = 0.1 if options.get("loss") == "mse" else 0.0
    penalty = make(name, {**options, "reads": "clean", **({"threshold": limit} if name == "adversarial" else {})})
    step = batch(24)
    for _ in range(20 * options.get("every", 1) // options.get("steps", 1)):
        penalty.inner_step(step)
    z, terms = step.z.detach().clone(), []
    for _ in range(12):
        here = z.requires_grad_()
        term, found = gradient(penalty, StepView(step.x, step.y, here, here, step.logits))
        terms.append(float(term))
        z = (here - 0.5 * found / found.abs().max().clamp_min(1e-12)).detach()
    assert terms[-1] < 0.98 * terms[0]


# distance correlation


def slow_distances(values: Tensor) -> list[list[float]]:
    rows = values.double().flatten(1)
    return [[float((one - other).square().sum()) ** 0.5 for other in rows] for one in rows]


def slow_distance_correlation(x: Tensor, z: Tensor) -> float:
    """By the definition, with loops, in float64."""
    n = len(x)

    def centred(values: Tensor) -> list[list[float]]:
        d = slow_distances(values)
        means = [sum(row) / n for row in d]
        whole = sum(means) / n
        return [[d[i][j] - means[i] - means[j] + whole for j in range(n)] for i in range(n)]

    a, b = centred(x), centred(z)

    def product(left: list[list[float]], right: list[list[float]]) -> float:
        return sum(left[i][j] * right[i][j] for i in range(n) for j in range(n)) / n**2

    return (product(a, b) / (product(a, a) * product(b, b)) ** 0.5) ** 0.5


def slow_corrected(x: Tensor, z: Tensor) -> float:
    """The same for the estimate without bias of dCor²."""
    n = len(x)

    def centred(values: Tensor) -> list[list[float]]:
        d = slow_distances(values)
        sums = [sum(row) for row in d]
        whole = sum(sums) / ((n - 1) * (n - 2))
        return [
            [0.0 if i == j else d[i][j] - (sums[i] + sums[j]) / (n - 2) + whole for j in range(n)] for i in range(n)
        ]

    a, b = centred(x), centred(z)

    def product(left: list[list[float]], right: list[list[float]]) -> float:
        return sum(left[i][j] * right[i][j] for i in range(n) for j in range(n)) / (n * (n - 3))

    return product(a, b) / (product(a, a) * product(b, b)) ** 0.5


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_equals_the_loop(dtype: torch.dtype, tolerance: float, scale: float) -> None:
    step = batch(9)
    found = distance_correlation(step.x.to(dtype), scale * step.z.detach().to(dtype))
    expected = slow_distance_correlation(step.x.to(dtype), scale * step.z.detach().to(dtype))
    assert float(found) == pytest.approx(expected, rel=tolerance)
    assert 0.3 < expected < 1
    found = corrected_distance_correlation(step.x.to(dtype), scale * step.z.detach().to(dtype))
    assert float(found) == pytest.approx(
        slow_corrected(step.x.to(dtype), scale * step.z.detach().to(dtype)), rel=tolerance
    )
    assert 0.1 < float(found) < 1


@pytest.mark.parametrize(("samples", "dimensions", "biased"), [(128, 16, 0.58), (128, 512, 0.97)])
def test_the_biased_value_of_independent_draws(samples: int, dimensions: int, biased: float) -> None:
    """In high dimensions the batch value hardly depends on what z says of x; docs/penalties.md quotes it."""
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(samples, dimensions, generator=generator) for _ in range(2))
    assert float(distance_correlation(x, z)) == pytest.approx(biased, abs=0.01)
    assert abs(float(corrected_distance_correlation(x, z))) < 0.02
    assert float(corrected_distance_correlation(x, x + 0.5 * z)) > 0.5


def test_distance_correlation_of_known_cases() -> None:
    x = torch.rand(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    assert float(distance_correlation(x, 3 * x @ rotation + 7)) == pytest.approx(1, abs=1e-9)
    many = torch.randn(600, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    others = torch.randn(600, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert float(distance_correlation(many, others)) < 0.12
    assert float(distance_correlation(many, many.square())) > 0.4, "no linear correlation, but dependence"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_correlation_of_constants_is_nothing_and_has_no_nan(dtype: torch.dtype) -> None:
    x = torch.rand(6, 1, 4, 4).to(dtype)
    for level in (0.3, 0.0):
        z = torch.full((6, 3), level, dtype=dtype, requires_grad=True)
        for measure, given in product((distance_correlation, corrected_distance_correlation), (x, torch.zeros_like(x))):
            value = measure(given, z)
            assert float(value.detach()) == 0
            (found,) = torch.autograd.grad(value, z)
            assert not found.any()
    twins = torch.rand(3, 4, dtype=dtype).repeat(2, 1).requires_grad_()
    (found,) = torch.autograd.grad(distance_correlation(x, twins), twins)
    assert found.isfinite().all() and found.any()


def test_the_gradient_of_distance_correlation_is_right() -> None:
    x = torch.rand(5, 3, dtype=torch.float64)
    z = torch.rand(5, 2, dtype=torch.float64, requires_grad=True)
    for measure in (distance_correlation, corrected_distance_correlation):
        assert torch.autograd.gradcheck(lambda feature, measure=measure: measure(x, feature), (z,))


# the adversarial decoder


def adversarial(**options: Any) -> AdversarialDecoder:
    penalty = make("adversarial", {**SMALL, **options})
    assert isinstance(penalty, AdversarialDecoder)
    return penalty


def test_the_inner_decoder_is_the_baselines() -> None:
    penalty = make("adversarial", {}, shape=(8, 8, 8), image=(3, 32, 32))
    assert count_parameters(penalty) == 415_091


@pytest.mark.parametrize(("loss", "reads"), [("ssim", "clean"), ("mse", "released")])
def test_the_inner_decoder_learns(loss: str, reads: str) -> None:
    penalty = adversarial(loss=loss, reads=reads, lr=1e-2)
    step, seen = batch(32), []
    for _ in range(50):
        penalty.inner_step(step)
        seen.append(float(penalty.get_buffer("fitted")))
    assert sum(seen[-5:]) < 0.6 * sum(seen[:5])
    told = penalty(step)[1]
    assert float(told["adversarial_decoder_loss"]) == pytest.approx(seen[-1])
    judged = float(told[f"adversarial_{loss}"])
    assert (judged > 0.3) if loss == "ssim" else (judged < 0.05), "in evaluation mode too"


@pytest.mark.parametrize("loss", ["ssim", "mse"])
@pytest.mark.parametrize("threshold", [None, 0.01, 0.2, 0.9])
def test_the_term_by_hand(loss: str, threshold: float | None) -> None:
    penalty, step = adversarial(loss=loss, threshold=threshold, weight=3.0), batch()
    penalty.inner_step(step)
    images = penalty.decoder.eval()(step.z).detach()
    if loss == "ssim":
        value = float(ssim(images, step.x, zero_pad=True).mean()) - (0.5 if threshold is None else threshold)
    else:
        value = (1.0 if threshold is None else threshold) - float(mse(images, step.x).mean())
    assert float(penalty(step)[0].detach()) == pytest.approx(3 * max(0.0, value), rel=1e-5)


def test_steps_and_every() -> None:
    """K steps on a batch are K calls on it; batches between are left out, counted anew each epoch."""
    once, twice = adversarial(), adversarial(steps=2)
    for _ in range(2):
        once.inner_step(batch())
    twice.inner_step(batch())
    assert all(torch.equal(value, twice.state_dict()[key]) for key, value in once.state_dict().items())
    third = adversarial(every=3)
    assert not third.static
    changed = []
    for position in range(7):
        if position == 5:
            third.begin_epoch(2, EPOCHS)
        before = state_of(third)
        third.inner_step(batch(seed=position))
        changed.append(any(not torch.equal(value, before[key]) for key, value in third.state_dict().items()))
    assert changed == [True, False, False, True, False, True, False]


def test_the_rate_of_the_inner_decoder_drops() -> None:
    penalty = adversarial(lr=1e-2, lr_milestones=[0.25, 0.625], lr_factor=0.5)
    rates = []
    for epoch in range(EPOCHS):
        penalty.begin_epoch(epoch, EPOCHS)
        rate = penalty.optimizers["decoder"].param_groups[0]["lr"]
        assert isinstance(rate, Tensor)
        rates.append(round(float(rate), 6))
    assert rates == [1e-2, 1e-2, 5e-3, 5e-3, 5e-3, 2.5e-3, 2.5e-3, 2.5e-3]


def test_low_precision_copies_of_weights_are_not_reused() -> None:
    """Under autocast the second of two steps must see what the first has learnt."""
    penalty, step = make("adversarial", {**SMALL, "steps": 6, "lr": 5e-3}, precision="bf16-mixed"), batch(16)
    losses = []
    for _ in range(3):
        penalty.inner_step(step)
        losses.append(float(penalty.get_buffer("fitted")))
    single = make("adversarial", {**SMALL, "steps": 1, "lr": 5e-3}, precision="bf16-mixed")
    for _ in range(18):
        single.inner_step(step)
    assert float(single.get_buffer("fitted")) == pytest.approx(losses[-1], rel=1e-3)


# the variational information bottleneck


def bottleneck(prior: str, size: int, **options: Any) -> VariationalBottleneck:
    penalty = make("vib", {"prior": prior, **options}, shape=(size,))
    assert isinstance(penalty, VariationalBottleneck)
    return penalty


def step_of(z: Tensor, y: Tensor) -> StepView:
    return StepView(torch.zeros(len(z), *IMAGE), y, z, z, z)


def rate_of(penalty: VariationalBottleneck, z: Tensor, y: Tensor) -> float:
    return float(penalty.evaluate(z, z, y)[0].detach())


@pytest.mark.parametrize("prior", ["standard", "learned", "class"])
def test_the_rate_is_the_divergence_from_the_prior(prior: str) -> None:
    penalty, generator = bottleneck(prior, 6), torch.Generator().manual_seed(2)
    z = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (40,), generator=generator)
    for part in penalty.parameters():
        part.data.copy_(torch.randn(part.shape, generator=generator))
    assert len(list(penalty.parameters())) == (0 if prior == "standard" else 2)
    rows = y if prior == "class" else torch.zeros_like(y)
    mean, deviation = penalty.mean[rows].double(), (penalty.log_variance[rows].double() / 2).exp()
    law = torch.distributions.Normal(mean, deviation)
    expected = torch.distributions.kl_divergence(torch.distributions.Normal(z, NOISE), law).sum(1).detach()
    assert expected.std() > 1
    assert rate_of(penalty, z, y) == pytest.approx(float(expected.mean()), rel=1e-10)
    assert float(penalty(step_of(z, y))[1]["vib_rate"]) == pytest.approx(float(expected.mean()), rel=1e-10)


def test_the_gradient_of_the_rate_is_right() -> None:
    generator = torch.Generator().manual_seed(3)
    z, mean, log_variance = (torch.randn(5, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    inputs = [part.requires_grad_() for part in (z, mean, log_variance)]
    assert torch.autograd.gradcheck(lambda *parts: gaussian_rate(parts[0], 0.3, *parts[1:]), inputs)


def gaussian_features(mix: Tensor, centre: Tensor, seed: int) -> Tensor:
    """Features h = centre + mix · u of inputs u whose sample mean and covariance are exactly 0 and the identity."""
    u = torch.randn(64, mix.shape[1], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    u = u - u.mean(0)
    return centre + u @ torch.linalg.cholesky(torch.linalg.inv(u.T @ u / len(u))) @ mix.T


def information(mix: Tensor) -> float:
    """I(u; h + noise) of these features in nats, for Gaussian u."""
    return float(torch.logdet(torch.eye(len(mix), dtype=mix.dtype) + mix @ mix.T / NOISE**2) / 2)


@pytest.mark.parametrize("prior", ["standard", "learned", "class"])
@pytest.mark.parametrize("correlated", [False, True], ids=["independent", "correlated"])
def test_the_rate_bounds_the_information(prior: str, correlated: bool) -> None:
    """With equality where the trained prior is the law of the release: independent features, one law for each prior."""
    generator = torch.Generator().manual_seed(4)
    scales = torch.tensor([0.3, 0.1, 0.05], dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    mixes = [number * (turn if correlated else torch.eye(3, dtype=torch.float64)) * scales for number in (1, 2)]
    z = torch.cat([gaussian_features(mix, torch.tensor(0.5 * row), row) for row, mix in enumerate(mixes)])
    y = torch.arange(2).repeat_interleave(64)
    known = sum(map(information, mixes)) / 2
    if prior != "class":  # one law of all: the first class alone
        z, y, known = z[:64], y[:64], information(mixes[0])
    penalty = bottleneck(prior, 3, lr=0.02)
    for _ in range(1500):
        penalty.inner_step(step_of(z, y))
    rate = rate_of(penalty, z, y)
    assert rate > known - 1e-6
    if prior == "standard" or correlated:
        assert rate > known + 0.1
    else:
        assert rate == pytest.approx(known, abs=2e-3)


@pytest.mark.parametrize("prior", ["standard", "learned", "class"])
def test_the_rate_trains_a_client_that_tells_less(prior: str) -> None:
    """A linear client and server with a task on one of eight inputs: the exact information falls with the weight."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(512, 8, generator=generator)
    y = (x[:, 0] > 0).long()
    told, errors = [], []
    for weight in (0.0, 0.01, 0.1):
        penalty = bottleneck(prior, 4, weight=weight)
        client = (0.3 * torch.randn(4, 8, generator=torch.Generator().manual_seed(6))).requires_grad_()
        server = torch.zeros(2, 4, requires_grad=True)
        optimizer = torch.optim.Adam([client, server], lr=0.02)
        for _ in range(300):
            z = x @ client.T
            noisy = z + NOISE * torch.randn(z.shape, generator=generator)
            step = StepView(x, y, z, noisy, noisy @ server.T)
            penalty.inner_step(step)
            loss = torch.nn.functional.cross_entropy(step.logits, y) + penalty(step)[0]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mix = client.detach().double()
        told.append(information(mix))
        solved = torch.linalg.lstsq(noisy.detach(), x).solution
        errors.append(float((noisy.detach() @ solved - x).square().mean()))
        assert float((step.logits.argmax(1) == y).float().mean()) > 0.85, "and still answers"
        if prior != "class":
            assert rate_of(penalty, z.detach().double(), y) > 0.97 * told[-1], "up to the sample"
    assert told[2] < told[1] < 0.9 * told[0]
    assert errors[2] > errors[1] > errors[0]


def test_the_noise_of_the_bound_is_what_z_meets_first() -> None:
    """Later stages only lower the information; what comes before the noise changes what it is added to."""
    one, other = ({"name": "gaussian", "noise_std": level} for level in (0.3, 0.4))
    drop, still = {"name": "dropout"}, {"name": "identity"}
    laplace = {"name": "laplace", "noise_std": 0.2}
    cases = [([one], 0.3), ([one, other], 0.5), ([still, one, drop, other], 0.3), ([one, laplace], 0.3)]
    cases += [([drop, one], 0), ([laplace, one], 0), ([{"name": "shaped"}], 0), ([{"name": "local_dp"}], 0)]
    keyed = {**one, "noise": "keyed"}
    for stages, expected in [*cases, ([keyed], 0.3)]:
        assert load_config({"channel": stages}).config.first_gaussian_std == pytest.approx(expected)
        settings = {"channel": stages, "penalties": {"name": "vib"}, "model.width": 4}
        if expected:
            trainer = Trainer(load_config("demo-none", settings).config, None)
            penalty = trainer.objective.penalties["vib"]
            assert penalty.noise_std == pytest.approx(expected)
            assert penalty.num_classes == 10
        else:
            with pytest.raises(ConfigError, match=r"vib bounds what passes Gaussian noise.*put channel\.name=gaussian"):
                load_config("demo-none", settings)


# in a run

TINY = {"blocks": 0, "width": 4}
BOTH = [{"name": "adversarial", **TINY, "every": 2}, {"name": "distance_correlation", "reads": "released"}]
LEARNED = [{"name": "vib", "prior": "learned"}, {"name": "vib", "prior": "class", "weight": 0.01}]


def fingerprint(run: RunDirectory) -> dict[str, bytes]:
    last = run.path / "checkpoints" / run.checkpoint_name("last")
    files = {file.name: file.read_bytes() for file in last.glob("*.safetensors")}
    return {"metrics": (run.path / "metrics.jsonl").read_bytes(), "name": last.name.encode(), **files}


def stop_at(step: int) -> Any:
    def report(stage: str, done: float, total: float, numbers: Any) -> None:
        if done >= step:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize(
    ("config", "penalties"),
    [("demo-kmeans", BOTH), ("demo", BOTH[1:]), *(("demo-none", [bottleneck]) for bottleneck in LEARNED)],
    ids=["kmeans, both", "gated, one", "learned prior", "prior of each class"],
)
def test_a_stopped_run_ends_in_the_same_bits(
    tmp_path: Path, tiny: dict[str, Any], config: str, penalties: list[dict[str, Any]]
) -> None:
    settings = {**tiny, "penalties": penalties}
    whole = train(config, settings, out=tmp_path / "whole", progress=silent)
    with pytest.raises(KeyboardInterrupt):
        train(config, settings, out=tmp_path / "stopped", progress=stop_at(20))
    resumed = train(resume=tmp_path / "stopped", progress=silent)
    assert fingerprint(resumed) == fingerprint(whole)
    assert {f"penalty-{p['name']}.safetensors" for p in penalties} < set(fingerprint(whole))
    lines = [line for line in whole.records() if line["kind"] == "train"]
    assert all(any(key.startswith(p["name"]) for key in line) for p in penalties for line in lines)


def test_a_penalty_of_weight_nothing_changes_nothing(tmp_path: Path, tiny: dict[str, Any]) -> None:
    """Nor do its weights take random numbers from the model's."""
    extra = {"penalties": [{"name": "adversarial", "weight": 0.0, **TINY}]}
    plain = train("demo-kmeans", tiny, out=tmp_path / "plain", progress=silent)
    beside = train("demo-kmeans", {**tiny, **extra}, out=tmp_path / "beside", progress=silent)
    for part in ("client", "server", "surrogate"):
        assert fingerprint(plain)[f"{part}.safetensors"] == fingerprint(beside)[f"{part}.safetensors"]


@pytest.mark.parametrize(
    ("options", "figure", "weight"),
    [
        ({"name": "distance_correlation"}, "distance_correlation", 10.0),
        ({"name": "vib", "prior": "learned", "lr": 0.1}, "vib_rate", 1.0),
    ],
    ids=["distance correlation", "vib"],
)
def test_penalties_act_on_the_client(
    options: dict[str, Any], figure: str, weight: float, tmp_path: Path, tiny: dict[str, Any]
) -> None:
    """A strong term is smaller at the end than without it."""
    ends = []
    for strength in (0.0, weight):
        extra = {"penalties": {**options, "weight": strength}}
        run = train("demo-none", {**tiny, **extra}, out=tmp_path / str(strength), progress=silent)
        ends.append([line for line in run.records() if line["kind"] == "train"][-1][figure])
    assert ends[1] < 0.8 * ends[0]


def test_a_checkpoint_holds_the_learned_prior(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = train("demo-none", {**tiny, "penalties": LEARNED[1]}, out=tmp_path / "run", progress=silent)
    weights = run.load("last", optimizer=False).weights["penalty-vib"]
    assert {name: len(value) for name, value in weights.items()} == {"mean": 10, "log_variance": 10}
    assert all(value.any(1).all() for value in weights.values()), "of every label"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"penalties": [{"name": "adversarial"}] * 2}, "penalties.1.name=adversarial: it is already in the list"),
        ({"penalties": {"name": "nopeek"}}, "adversarial, distance_correlation"),
        ({"penalties": {"name": "adversarial", "warmup_epochs": 20}}, "penalties.0.warmup_epochs=20 leaves no epoch"),
        ({"penalties": {"name": "adversarial", "steps": 0}}, "penalties.0.steps"),
        ({"penalties": {"name": "distance_correlation", "weight": -1}}, "penalties.0.weight"),
        ({"penalties": {"name": "distance_correlation", "steps": 1}}, "penalties.0.steps"),
        ({"penalties": {"name": "vib", "reads": "released"}}, "penalties.0.reads=released: must be one of: clean"),
        ({"penalties": {"name": "vib", "prior": "best"}}, "penalties.0.prior"),
        (
            {"penalties": {"name": "vib"}, "channel": {"name": "laplace"}},
            "penalties.0.name=vib bounds what passes Gaussian noise, but z meets none first in this channel .laplace.:",
        ),
        (
            {"penalties": {"name": "vib"}, "channel": {"name": "gaussian", "noise_std": 0}},
            "put channel.name=gaussian with noise_std above 0 before every other stage",
        ),
        (
            {"penalties": {"name": "distance_correlation"}, "training": {"batch_size": 3}},
            "training.batch_size=3 with processes=1: distance correlation takes 4 or more",
        ),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", r"\[")):
        load_config(given)


def test_one_penalty_is_a_list_of_one_and_can_be_overridden() -> None:
    config = load_config({"penalties": {"name": "adversarial"}}, ["penalties.steps=3"]).config
    assert [(p.name, getattr(p, "steps", 0)) for p in config.penalties] == [("adversarial", 3)]
    assert load_config(None, ["penalties.name=distance_correlation"]).config.penalties[0].weight == 0.3
    assert load_config({"penalties": []}).config.penalties == []
