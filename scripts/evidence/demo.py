"""The demo's models on the embedded images: what anyone can measure again without a GPU."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence

from attncem.records import leaks
from attncem.records.campaign_table import Ends
from attncem.records.metrics import ACCURACY
from evidence.source import Source
from evidence.words import number, over_images, table_of, title

Row = Mapping[str, str]
FIGURE = "reconstructions.png"
NOT_MEASURED = "The demo is not measured yet: `attncem demo`."


def rows(source: Source, kind: str = "run") -> list[dict[str, str]]:
    """The lines of one kind (`run`, `alone`, `floor`) of what `attncem demo` prints; empty if not measured yet."""
    file = source.folder / "demo.csv"
    if not file.is_file():
        return []
    with file.open(encoding="utf-8", newline="") as opened:
        return [row for row in csv.DictReader(opened) if row["kind"] == kind]


def _interval(measure: str) -> Callable[[Row], str]:
    """A measure with its interval over images; empty where the line has none."""

    def write(row: Row) -> str:
        ends = [row[f"{measure}{end}"] for end in ("", "_low", "_high")]
        return over_images(measure, Ends(*map(float, ends))) if all(ends) else ""

    return write


def _number(measure: str) -> Callable[[Row], str]:
    return lambda row: number(measure, float(row[measure])) if row[measure] else ""


def _nats(name: str) -> Callable[[Row], str]:
    return lambda row: f"{float(row[name]):.1f}" if row[name] else ""


RUNS: dict[str, Callable[[Row], str]] = {
    "run": lambda row: f"`{row['run']}`",
    "defence": lambda row: row["surrogate"] if row["kind"] == "run" else "the client alone: nothing is released",
    title(ACCURACY): _interval(ACCURACY),
    title("mse"): _interval("mse"),
    title("structure"): _number("structure"),
    title("ssim"): _number("ssim"),
    "nats ≤": _nats(leaks.LIMIT),
    "beyond the label ≤": _nats(leaks.BEYOND),
    "training time, times": lambda row: f"{float(row['training_ratio']):.2f}",
}
FLOORS: dict[str, Callable[[Row], str]] = {
    "guess": lambda row: row["run"],
    **{key: RUNS[key] for key in (title("mse"), title("structure"), title("ssim"))},
    f"{title('psnr')} dB": _number("psnr"),
}


def runs_table(source: Source) -> str:
    """The models, and the client alone."""
    return table_of([*rows(source), *rows(source, "alone")], RUNS, left=2)


def floors_table(source: Source) -> str:
    """The blind guesses."""
    return table_of(rows(source, "floor"), FLOORS)


def answer(source: Source) -> str:
    """What the most private model gains and costs, and how it compares with the client alone."""
    runs, alone = rows(source), rows(source, "alone")
    if not runs or not alone:
        return NOT_MEASURED
    plain, best = runs[0], max(runs, key=lambda row: float(row["mse"]))
    return (
        f"In minutes on two cores: the strongest attack's MSE rises from {_score(plain, 'mse')} without a defence to "
        f"{_score(best, 'mse')} (`{best['run']}`), at {_score(best, ACCURACY)} instead of {_score(plain, ACCURACY)} % "
        f"accuracy. {_alone(runs, alone[0])}"
    )


def _alone(runs: Sequence[Row], alone: Row) -> str:
    """Against how many models the client alone is at least as accurate."""
    beaten = sum(float(row[ACCURACY]) <= float(alone[ACCURACY]) for row in runs[1:])
    return (
        f"The client alone has {_score(alone, ACCURACY)} %, at least as much as {beaten} of the {len(runs) - 1} models "
        "with a defence; one seed shows no winner."
    )


def _score(row: Row, measure: str) -> str:
    return number(measure, float(row[measure]))
