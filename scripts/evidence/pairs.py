"""One part of a claim over another on every data set: the answers about attention, the front end and other data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attncem.records.leaks import LIMIT, say_leak
from attncem.records.statistics import Interval
from attncem.records.study.equal import PairEffect
from evidence import lean, lean_claim
from evidence.claim import Claim, ClaimResult, find
from evidence.drawing import Lines, of_lines
from evidence.front import AT, sides
from evidence.others import ATTENTION
from evidence.source import Source
from evidence.words import listed, not_measured, ratio, table_of

DATA = {
    "claim-cifar10": "CIFAR-10",
    "claim-tiny-imagenet": "Tiny-ImageNet",
    "claim-lfw": "faces (LFW)",
    "claim-demo": "embedded images",
}
"""The data of every claim."""
PARTS = {
    "a": "kmeans",
    "b": "front end + kmeans",
    "c": "front end + attention",
    "d": "thin client, front end + attention",
}
"""The parts of a claim."""
VERDICTS = {
    "more_private": "more private",
    "less_private": "**less private**",
    "no_difference_shown": "no difference shown",
    "better": "better, too few seeds for a test",
    "worse": "**worse**, too few seeds for a test",
    "open": "open, too few seeds for a test",
}
"""What the tests, or with too few seeds the intervals, say of MSE and structure error together."""
NOT_CORRECTED = " (accuracy not corrected)"
FRONT_END, EVERYWHERE = "results-front-end.svg", "results-data.svg"


@dataclass(frozen=True)
class Pair:
    """A part of a measured claim compared with another part."""

    claim: ClaimResult
    part: str
    other: str = "a"

    @property
    def campaign(self) -> str:
        """The campaign of the claim."""
        return self.claim.claim.campaign

    @property
    def data(self) -> str:
        """The data set."""
        return DATA[self.campaign]

    @property
    def seeds(self) -> int:
        """The smallest number of seeds of both parts."""
        return min(len(self.claim.arms[one].seeds) for one in (self.part, self.other))

    @property
    def points(self) -> float:
        """The difference of the accuracies in percentage points."""
        return 100 * (self.claim.arms[self.part].accuracy - self.claim.arms[self.other].accuracy)

    @property
    def effects(self) -> dict[str, PairEffect]:
        """Every measure, at equal accuracy if that is known and not extrapolated."""
        pair = self.part, self.other
        return self.claim.measured[pair] if self.as_measured else self.claim.judged(*pair)

    @property
    def as_measured(self) -> bool:
        """Whether the errors are not corrected to equal accuracy."""
        corrected = {self.part, self.other} <= self.claim.equal.keys()
        return not corrected or (self.part == "d" and not self.claim.slope.covers(self.claim.arms["d"].accuracy))

    @property
    def verdict(self) -> str:
        """The result of the tests on MSE and structure error; with too few seeds, the direction of their intervals."""
        effects = [self.effects[name] for name in ("mse", "structure")]
        answers = {effect.answer for effect in effects}
        if "too_few_seeds" not in answers:
            order = ("less_private", "no_difference_shown", "more_private")
            return next(answer for answer in order if answer in answers)
        ends = [(effect.comparison.ratio_low or 0.0, effect.comparison.ratio_high or 0.0) for effect in effects]
        if any(high < 1 for _, high in ends):
            return "worse"
        return "better" if all(low > 1 for low, _ in ends) else "open"

    @property
    def mixed(self) -> bool:
        """Whether the noise of the two parts differs, too."""
        return len({self.claim.arms[one].config.noise_std for one in (self.part, self.other)}) > 1


def pairs(source: Source, claims: Sequence[Claim], part: str, other: str) -> list[Pair]:
    """A pair in every claim that has all seeds of both parts."""
    results = [result for one in claims if (result := find(source, one)) is not None]
    return [Pair(result, part, other) for result in results if all(_all_seeds(result, one) for one in (part, other))]


def _all_seeds(result: ClaimResult, part: str) -> bool:
    """Whether a part was measured with all its seeds."""
    arm = result.arms.get(part)
    return arm is not None and not any(cell.startswith(arm.name) for cell in result.table.unfinished or ())


# the table and the figure


def pairs_table(rows: Sequence[Pair]) -> str:
    """Ratios of MSE and structure error with a verdict, a line for each pair; the parts only where they differ."""
    several = len({(row.part, row.other) for row in rows}) > 1
    compared: dict[str, Callable[[Pair], str]] = {
        "compared": lambda row: f"{PARTS[row.part]} over {PARTS[row.other]}",
    }
    columns: dict[str, Callable[[Pair], str]] = {
        "data": lambda row: f"{row.data}{', other σ' if row.mixed else ''}",
        **(compared if several else {}),
        "seeds": lambda row: str(row.seeds),
        "accuracy, points": lambda row: f"{row.points:+.2f}",
        "MSE, times": lambda row: ratio(row.effects["mse"]),
        "structure, times": lambda row: ratio(row.effects["structure"]),
        "verdict": lambda row: f"{VERDICTS[row.verdict]}{NOT_CORRECTED if row.as_measured else ''}",
    }
    return table_of(rows, columns, left=1 + several, last=1)


def everywhere(source: Source, claims: Sequence[Claim]) -> list[Pair]:
    """Front end and attention over the baseline on every data set, with and without a thin client."""
    return [*pairs(source, claims, "c", "a"), *pairs(source, claims, "d", "a")]


def figure_of_front_end(source: Source, claims: Sequence[Claim]) -> bytes | None:
    """The front end over no front end; None if not measured yet."""
    return _figure("What the front end does", FRONT_END, pairs(source, claims, "b", "a"))


def figure_of_all_data(source: Source, claims: Sequence[Claim]) -> bytes | None:
    """Front end and attention over the baseline; None if not measured yet."""
    return _figure("Front end and attention over the baseline", EVERYWHERE, everywhere(source, claims))


def _figure(title: str, name: str, rows: Sequence[Pair]) -> bytes | None:
    if not rows:
        return None
    measures, across = ("mse", "structure"), "times the attacker's error; above 1 is more private"
    lines = [(_line(row), [_interval(row.effects[measure]) for measure in measures]) for row in rows]
    return of_lines(name, Lines(title, across, ("MSE", "structure error"), lines, at=1))


def _line(row: Pair) -> str:
    return f"{row.data}, thin client" if row.part == "d" else row.data


def _interval(effect: PairEffect) -> Interval | None:
    one = effect.comparison
    if one.ratio is None or one.ratio_low is None or one.ratio_high is None:
        return None
    return Interval(one.ratio, one.ratio_low, one.ratio_high)


# the answers: two sentences each

ANSWERS = {
    "attention": {
        "more_private": "Yes",
        "less_private": "No, it leaks more",
        "no_difference_shown": "No gain is shown",
        "few": "Too few seeds to tell",
        "what": (
            "behind the same front end, attention leaves the attacker {mse} times the MSE and {structure} times the "
            "structure error of kmeans"
        ),
    },
    "front end": {
        "more_private": "It makes the client more private",
        "less_private": "It makes the client less private",
        "no_difference_shown": "No gain is shown",
        "few": "Too few seeds to tell",
        "what": "with kmeans it leaves the attacker {mse} times the MSE and {structure} times the structure error",
    },
}
"""The first sentence of an answer by its verdict, and what was measured."""


def attention(source: Source, claims: Sequence[Claim]) -> str:
    """Whether attention leaks less than kmeans: the claim, and the nats of single runs on a lean client."""
    rows = pairs(source, claims[:1], "c", "b")
    if not rows:
        return f"The claim is {not_measured(claims[0].campaign)}."
    answer = _sentence(rows[0], ANSWERS["attention"])
    return f"{answer} {_nats(source)}".strip()


def _sentence(row: Pair, words: Mapping[str, str]) -> str:
    """The verdict on a pair with its ratios, and what they were measured on."""
    ratios = {one: ratio(row.effects[one]) for one in ("mse", "structure")}
    accuracy = "at the accuracies measured" if row.as_measured else "at equal accuracy"
    verdict = words.get(row.verdict, words["few"])
    return f"{verdict}: {words['what'].format(**ratios)} ({row.data}, {row.seeds} seeds, {accuracy})."


def _nats(source: Source) -> str:
    """The least limit of every family of penalties on a lean client: at one accuracy if that is measured."""
    return _at_one_accuracy(source) or _of_single_runs(source)


FAMILIES = {
    "attention": lean_claim.ATTENTION,
    "plain capacity": ("capacity",),
    "kmeans": ("kmeans",),
    "kmeans of each dimension": ("kmeans-per-dimension",),
}
"""Families of penalties by the arms of the selection on a lean client."""


def _at_one_accuracy(source: Source) -> str:
    """The limits at the highest floor of validation accuracy that all families reach; empty where none is."""
    lines = lean_claim.points(source)
    for floor in lean_claim.floors(lines) if lean_claim.UNDEFENDED in lines else ():
        chosen = {
            name: [one for arm in arms if (one := lean_claim.choice(lines.get(arm, ()), floor)) is not None]
            for name, arms in FAMILIES.items()
        }
        if all(chosen.values()):
            parts = [f"{say_leak(LIMIT, min(one.limit for one in of))} nats with {name}" for name, of in chosen.items()]
            seeds = min(one.seeds for of in chosen.values() for one in of)
            return (
                f"On a lean client, at a validation accuracy of at least {100 * floor:.2f} %, the lowest limits on the "
                f"leak are {listed(parts)} ({seeds} seeds, validation images, no test)."
            )
    return ""


def _of_single_runs(source: Source) -> str:
    """The least limit of every family of penalties on the largest lean client."""
    rows = [one for one in lean.measured(source) if one.arm.config.model.name == "lean" and not one.is_code]
    largest = max((one.budget for one in rows), default=0)
    kinds = {"attention": ATTENTION, "plain capacity": ("capacity",), "kmeans": ("kmeans",)}
    least: dict[str, float] = {}
    for kind, names in kinds.items():
        limits = [
            limit
            for one in rows
            if one.budget == largest and one.arm.config.surrogate.name in names and one.arm.weight
            if (limit := one.leak(LIMIT)) is not None
        ]
        least |= {kind: min(limits)} if limits else {}
    if len(least) < len(kinds):
        return ""
    parts = [f"{say_leak(LIMIT, limit)} nats with {kind}" for kind, limit in least.items()]
    return (
        "On a lean client of the same cost, with one seed each and so without a test, the lowest limits on the leak "
        f"are {listed(parts)}."
    )


def front_end(source: Source, claims: Sequence[Claim]) -> str:
    """What the front end does on CIFAR-10 for kmeans and for every surrogate, and what it does on other data."""
    rows = pairs(source, claims, "b", "a")
    first = [row for row in rows if row.campaign == claims[0].campaign]
    if not first:
        return f"The claim is {not_measured(claims[0].campaign)}."
    others = [row for row in rows if row.campaign != claims[0].campaign]
    parts = [_sentence(first[0], ANSWERS["front end"])]
    both = sides(source)
    if both:
        count, times = len(both.without), both.range("mse")
        parts.append(f"At {100 * AT:g} % accuracy each of {count} surrogates leaves {times} times the MSE behind it.")
    if others:
        parts.append(f"Other data: {'; '.join(map(_verdict, others))}.")
    return " ".join(parts)


def _verdict(row: Pair) -> str:
    """The data set and the verdict on it."""
    return f"{row.data} {VERDICTS[row.verdict]}{NOT_CORRECTED if row.as_measured else ''}"


GROUPS = {
    "more private on": ("more_private", "better"),
    "less private on": ("less_private", "worse"),
    "not shown to differ on": ("no_difference_shown", "open"),
}
"""Data sets by the verdict, in words of the answer."""


def elsewhere(source: Source, claims: Sequence[Claim]) -> str:
    """Front end and attention over the baseline: on which data they gain, and how reliable the numbers are."""
    rows = pairs(source, claims, "c", "a")
    if not rows:
        return f"The claim is {not_measured(claims[0].campaign)}."
    groups = {name: [row.data for row in rows if row.verdict in verdicts] for name, verdicts in GROUPS.items()}
    parts = [f"{name} {listed(data)}" for name, data in groups.items() if data]
    return f"Compared with the baseline, front end and attention together are {', '.join(parts)}. {_doubts(rows)}"


def _doubts(rows: Sequence[Pair]) -> str:
    """Data with too few seeds, and data on which attacks had not converged."""
    few = [row.data for row in rows if row.verdict in ("better", "worse", "open")]
    counts = [(row.data, *unreliable(row.claim)) for row in rows]
    doubtful = [f"{count} of {runs} runs on {data}" for data, count, runs in counts if count]
    parts = (
        [f"there are too few seeds for a test on {listed(few)}"]
        if few
        else ["every data set has enough seeds for a test"]
    )
    parts += (
        [f"the audits call the attack unreliable in {listed(doubtful)}, so these numbers look too good"]
        if doubtful
        else []
    )
    sentence = "; ".join(parts)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def unreliable(result: ClaimResult) -> tuple[int, int]:
    """The number of runs of a claim in which the audit calls the strongest attack unreliable, and of all its runs."""
    arms = [arm for arm in result.arms.values() if arm.campaign == result.claim.campaign]
    return sum(arm.unreliable() for arm in arms), sum(len(arm.seeds) for arm in arms)
