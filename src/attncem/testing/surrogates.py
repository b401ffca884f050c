"""The contract of surrogates: check_surrogate(), and its laws one by one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from attncem.base.types import SurrogateOutput
from attncem.testing.laws import check_laws, holds
from attncem.testing.surrogate_case import NUM_CLASSES, SHAPE, Reference, SurrogateCase, batch
from attncem.testing.truth import TRUTH_CLASSES, TRUTH_STEPS, draw_law, learn_on_frozen_features
from attncem.training.surrogates.base import Surrogate
from attncem.training.surrogates.none import NoPenalty

HARD_BATCHES = {
    "one sample a class": (batch(5)[0], torch.arange(5)),
    "missing classes": (batch(12)[0], torch.tensor([1, 3]).repeat(6)),
    "constant z": (torch.full((12, *SHAPE), 0.5), torch.arange(12) % NUM_CLASSES),
    "zero z": (torch.zeros(12, *SHAPE), torch.arange(12) % NUM_CLASSES),
    "large z": (1e4 * batch()[0], batch()[1]),
    "one sample": (batch(1)[0], torch.tensor([2])),
}
"""Batches that divide by zero or overflow where a formula is careless."""


def total_of(output: SurrogateOutput, part: float = 1.0) -> Tensor:
    """Both losses, for one backward pass."""
    return output.loss if output.fit_loss is None else output.loss + part * output.fit_loss


# laws


def equals_its_reference(case: SurrogateCase) -> None:
    """The loss is that of the same formula with plain loops, in float32 and float64."""
    if case.reference is None:
        return
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        check_reference(case, dtype, tolerance)


def check_reference(case: SurrogateCase, dtype: torch.dtype, tolerance: float, num_classes: int = NUM_CLASSES) -> None:
    """Compare a surrogate with its reference in float64: the tolerance is the fast version's rounding alone."""
    assert case.reference is not None
    surrogate = case.make(num_classes=num_classes, dtype=dtype)
    z, y = batch(num_classes=num_classes, dtype=dtype)
    output = case.call(surrogate, z, y)
    loss, per_class = case.reference(surrogate.double(), z.double(), y, case.noise(surrogate))
    holds(output.loss.dtype == dtype, f"the loss of {dtype} features has the type {output.loss.dtype}")
    torch.testing.assert_close(output.loss.double(), loss, rtol=tolerance, atol=1e-12)
    torch.testing.assert_close(output.per_class.double(), per_class, rtol=tolerance * 10, atol=1e-8, equal_nan=True)


def sample_order_is_irrelevant(case: SurrogateCase) -> None:
    """The order of samples in a batch changes nothing."""
    surrogate = case.make(dtype=torch.float64)
    z, y = batch(dtype=torch.float64)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    one, other = case.call(surrogate, z, y), case.call(surrogate, z[order], y[order])
    torch.testing.assert_close(one.loss, other.loss, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(one.per_class, other.per_class, rtol=1e-10, atol=1e-12, equal_nan=True)


def hard_batches_are_finite(case: SurrogateCase) -> None:
    """Values and gradients are finite on every batch: single samples, missing classes, constant or large features."""
    for name in HARD_BATCHES:
        is_finite_on(case, name)


def is_finite_on(case: SurrogateCase, name: str) -> None:
    """Values and gradients are finite on one of HARD_BATCHES."""
    surrogate = case.make()
    z, y = HARD_BATCHES[name]
    z = z.clone().requires_grad_()
    output = case.call(surrogate, z, y)
    total = total_of(output)
    total.backward()
    holds(total.isfinite(), f"{name}: the loss is {float(total.detach())}")
    holds(z.grad is not None and z.grad.isfinite().all(), f"{name}: the gradient of z is missing or not finite")
    bad = [key for key, value in output.diagnostics.items() if not value.isfinite()]
    holds(not bad, f"{name}: diagnostics are not finite: {', '.join(bad)}")
    weights = [key for key, p in surrogate.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
    holds(not weights, f"{name}: gradients are not finite: {', '.join(weights)}")


def loss_reaches_z_and_no_own_weight(case: SurrogateCase) -> None:
    """The gradient of the loss reaches z, and none of the surrogate's own weights."""
    surrogate = case.make()
    z, y = batch()
    z.requires_grad_()
    case.call(surrogate, z, y).loss.backward()
    nothing = isinstance(surrogate, NoPenalty)
    holds(z.grad is not None and (nothing or z.grad.abs().sum() > 0), "z gets no gradient")
    reached = [key for key, parameter in surrogate.named_parameters() if parameter.grad is not None]
    holds(not reached, f"these weights get one: {', '.join(reached)}; detach them (own_weight)")


def fit_loss_moves_own_weights_and_not_z(case: SurrogateCase) -> None:
    """The fit loss exists where weights learn; it moves all of them and does not reach z."""
    surrogate = case.make()
    z, y = batch()
    z.requires_grad_()
    trainable = [parameter for parameter in surrogate.parameters() if parameter.requires_grad]
    fit_loss = case.call(surrogate, z, y).fit_loss
    holds((fit_loss is None) == (not trainable), f"{len(trainable)} weights learn, and fit_loss is {fit_loss}")
    if fit_loss is None:
        return
    before = [parameter.detach().clone() for parameter in trainable]
    optimiser = torch.optim.Adam(trainable, lr=1e-2)
    fit_loss.backward()
    optimiser.step()
    holds(z.grad is None, "its gradient reaches z: use the detached z that _fit gets")
    still = sum(torch.equal(old, new) for old, new in zip(before, trainable, strict=True))
    holds(not still, f"{still} of {len(trainable)} weights do not move")


def penalty_and_own_loss_do_not_wait_for_each_other(case: SurrogateCase) -> None:
    """Penalty and fit loss are the same in either order, unless fit_reads_penalty says otherwise."""
    results = []
    z, y = batch()
    for own_first in (False, True):
        surrogate = case.make().train()
        torch.manual_seed(3)
        prepared = surrogate.share(surrogate.prepare(z, y))
        first = surrogate.fit(prepared) if own_first else None
        output = surrogate.penalise(prepared)
        results.append((output, first if own_first else surrogate.fit(prepared)))
    (output, own), (other, own_before) = results
    torch.testing.assert_close(other.loss, output.loss, rtol=0, atol=0)
    torch.testing.assert_close(dict(other.diagnostics), dict(output.diagnostics), rtol=0, atol=0, equal_nan=True)
    holds((own is None) == (own_before is None), "the fit loss exists in one order only")
    if own is not None and not surrogate.fit_reads_penalty:
        torch.testing.assert_close(own_before, own, rtol=0, atol=0)


def what_is_shared_changes_nothing(case: SurrogateCase) -> None:
    """With and without `share`, losses and gradients are the same."""
    results = []
    for shared in (False, True):
        z, y = batch()
        z.requires_grad_()
        surrogate = case.make().train()
        torch.manual_seed(3)
        given = surrogate.prepare(z, y)
        given = surrogate.share(given) if shared else given
        output, own = surrogate.penalise(given), surrogate.fit(given)
        (output.loss if own is None else output.loss + own).backward()
        gradients = {key: weight.grad for key, weight in surrogate.named_parameters() if weight.grad is not None}
        results.append((output.loss, own, dict(output.diagnostics), z.grad, gradients))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6, equal_nan=True)


def state_goes_round(case: SurrogateCase) -> None:
    """A copy made from the state_dict computes the same: all state is in weights and buffers."""
    surrogate = case.make()
    torch.manual_seed(1)
    other = case.build()
    other.load_state_dict(surrogate.state_dict())
    z, y = batch()
    one, two = case.call(surrogate, z, y), case.call(other, z, y)
    holds(torch.equal(one.loss, two.loss), f"the loss is {float(one.loss.detach())}, then {float(two.loss.detach())}")
    holds(one.diagnostics.keys() == two.diagnostics.keys(), "it has other diagnostics")
    other_values = [key for key in one.diagnostics if not torch.equal(one.diagnostics[key], two.diagnostics[key])]
    holds(not other_values, f"diagnostics differ: {', '.join(other_values)}")


def loss_falls_with_the_spread(case: SurrogateCase) -> None:
    """The loss falls as the spread inside the classes does: 1, 0.5, 0.1."""
    surrogate = case.make()
    losses = [float(case.call(surrogate, *batch(60, spread=spread)).loss) for spread in (1.0, 0.5, 0.1)]
    nothing = isinstance(surrogate, NoPenalty)
    fine = losses == [0, 0, 0] if nothing else losses[0] > losses[1] > losses[2]
    holds(fine, f"the losses are {', '.join(f'{loss:.4g}' for loss in losses)}")


def forward_never_reads_from_the_device(case: SurrogateCase) -> None:
    """Nothing waits for a value on the device, and shapes are static, so a step can be captured as a CUDA graph."""
    with FakeTensorMode():
        surrogate = case.build()
        z = torch.randn(12, *SHAPE, requires_grad=True)
        output = surrogate(z, torch.zeros(12, dtype=torch.int64))
        total_of(output).backward()
    holds(output.per_class.shape == (NUM_CLASSES,), f"per_class has the shape {list(output.per_class.shape)}")
    holds({value.shape for value in output.diagnostics.values()} == {torch.Size([])}, "a diagnostic is not a scalar")


class Operations(TorchDispatchMode):
    """Counts the operations that reach the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **kwargs or {})


def graph_does_not_grow_with_classes(case: SurrogateCase) -> None:
    """The number of operations is the same for 10 and 20 classes: no loop over classes."""

    def num_operations(num_classes: int) -> int:
        surrogate = case.make(num_classes=num_classes)
        z, y = batch(64, num_classes=num_classes)
        with Operations() as operations:
            case.call(surrogate, z, y)
        return int(operations.count)

    few, many = num_operations(10), num_operations(20)
    holds(0 < few == many, f"there are {few} operations for 10 classes and {many} for 20")


def compiles_to_one_graph(case: SurrogateCase) -> None:
    """torch.compile makes one graph of it, forward and backward, that gives the same."""
    with warnings.catch_warnings():  # torch's own tracer instantiates autograd functions, and torch warns about it
        warnings.filterwarnings("ignore", ".*should not be instantiated", DeprecationWarning)
        compiled_equals_plain(case, "eager", 1e-6)


def compiled_equals_plain(case: SurrogateCase, backend: str, tolerance: float) -> None:
    """One graph, forward and backward, gives what the plain module gives, stored state included."""
    results = []
    for compiled in (False, True):
        surrogate = case.make()
        z, y = batch()
        z.requires_grad_()
        noise = case.noise(surrogate)

        def total(z: Tensor, y: Tensor, surrogate: Surrogate = surrogate, noise: Tensor | None = noise) -> Tensor:
            return total_of(surrogate(z, y, noise=noise), 0.5)

        torch._dynamo.reset()
        torch.manual_seed(5)
        value = torch.compile(total, backend=backend, fullgraph=True)(z, y) if compiled else total(z, y)
        value.backward()
        assert z.grad is not None
        own = [parameter.grad for parameter in surrogate.parameters() if parameter.grad is not None]
        results.append([value.detach(), z.grad, *own, *surrogate.state_dict().values()])
    for plain, other in zip(*results, strict=True):
        torch.testing.assert_close(other, plain, rtol=tolerance, atol=tolerance)


def wrong_shapes_are_named(case: SurrogateCase) -> None:
    """A batch of another shape, type or size is refused with a ValueError that names it."""
    surrogate = case.make()
    z, y = batch()
    wrong: dict[str, tuple[Tensor, Tensor]] = {
        "z: expected shape [B, 4, 2, 2], got [30, 16]": (z.flatten(1), y),
        "y: expected shape [30]": (z, y[:-1]),
        "integer labels": (z, y.float()),
        "empty batch": (z[:0], y[:0]),
    }
    for words, given in wrong.items():
        try:
            surrogate(*given)
        except ValueError as error:
            holds(words in str(error), f"the error lacks {words!r}: {error}")
        else:
            raise AssertionError(f"it accepts a batch that is wrong: {words}")


def labels_out_of_range_are_left_out_and_counted(case: SurrogateCase) -> None:
    """Samples whose label is no class change nothing and are counted as skipped."""
    surrogate = case.make()
    z, y = batch()
    y[:3] = torch.tensor([-1, NUM_CLASSES, -100])
    clean = case.call(surrogate, z, y)
    z[:3] = 77.0
    moved = case.call(surrogate, z, y)
    holds(torch.equal(clean.loss, moved.loss), "they change the loss")
    torch.testing.assert_close(clean.diagnostics["skipped"], torch.tensor(0.1), atol=1e-6, rtol=0)


def statistics_ignore_autocast(case: SurrogateCase) -> None:
    """Under autocast to bfloat16 it still computes in float32."""
    surrogate = case.make()
    z, y = batch()
    z = z.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = case.call(surrogate, z, y)
    holds(mixed.loss.dtype == torch.float32, f"the loss has the type {mixed.loss.dtype}")
    holds(torch.equal(mixed.loss, case.call(surrogate, z.float(), y).loss), "it gives another loss")


def outputs_are_detached_scalars(case: SurrogateCase) -> None:
    """The loss is a scalar with a gradient; everything else is detached, with the diagnostics of every surrogate."""
    z, y = batch()
    output = case.call(case.make(), z.requires_grad_(), y)
    holds(output.loss.shape == () and output.loss.requires_grad, "the loss is no scalar with a gradient")
    holds(not output.per_class.requires_grad, "per_class has a gradient")
    missing = {"rob_loss", "intra_mse", "skipped", "active"} - output.diagnostics.keys()
    holds(not missing, f"diagnostics are missing: {', '.join(sorted(missing))}")
    live = [key for key, value in output.diagnostics.items() if value.requires_grad]
    holds(not live, f"diagnostics have a gradient: {', '.join(live)}")
    holds(torch.equal(output.diagnostics["rob_loss"], output.loss.detach()), "rob_loss is not the loss")


# the truth


def training_hides_no_spread(case: SurrogateCase) -> None:
    """Truth: training its weights on frozen features never makes it report less spread than there is."""
    for ratio, components in ((1.0, 1), (25.0, 3)):
        keeps_its_start(case, ratio, components)


def keeps_its_start(case: SurrogateCase, ratio: float = 1.0, components: int = 1) -> None:
    """After 300 steps of its own training it reports at least 0.8 of what it reported before, on the same features."""
    z, y, _ = draw_law(ratio, components)
    torch.manual_seed(0)
    surrogate = case.build((128,), TRUTH_CLASSES, 1.0)
    surrogate.refresh([(z, y)])
    start, reported = learn_on_frozen_features(surrogate, z, y)
    holds(start > 0, f"it reports {start:.4g} for features with a spread")
    said = f"on frozen features it reported {start:.4g}, and {reported:.4g} after {TRUTH_STEPS} steps of its training"
    holds(reported >= 0.8 * start, said)


LAWS = (
    equals_its_reference,
    sample_order_is_irrelevant,
    hard_batches_are_finite,
    loss_reaches_z_and_no_own_weight,
    fit_loss_moves_own_weights_and_not_z,
    penalty_and_own_loss_do_not_wait_for_each_other,
    what_is_shared_changes_nothing,
    state_goes_round,
    loss_falls_with_the_spread,
    forward_never_reads_from_the_device,
    graph_does_not_grow_with_classes,
    compiles_to_one_graph,
    wrong_shapes_are_named,
    labels_out_of_range_are_left_out_and_counted,
    statistics_ignore_autocast,
    outputs_are_detached_scalars,
    training_hides_no_spread,
)
"""The laws of every surrogate."""


def check_surrogate(
    kind: type[Surrogate], options: Mapping[str, Any] | None = None, *, reference: Reference | None = None
) -> None:
    """Check a surrogate's class against the contract; ContractError names every broken law.

    ``options`` are values of its options class: call it once for every choice that takes another path in the code.
    ``reference(surrogate, z, y, noise)`` is the same formula with plain loops and returns the loss and the values of
    the classes ([num_classes], nan for a class that is left out); without it nothing checks the formula itself.
    """
    check_laws(kind.__name__, LAWS, SurrogateCase(kind, options or {}, reference=reference))
