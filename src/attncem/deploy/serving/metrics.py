"""Numbers of a server in Prometheus' text format: counts and times, no content."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of times, in seconds."""


class Metrics:
    """What a server counts about its requests."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._rows: Counter[str] = Counter()
        self._releases: Counter[str] = Counter()
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(_BOUNDS) + 1))
        self._seconds: Counter[str] = Counter()

    def request(self, route: str, model: str, status: int, seconds: float) -> None:
        """Count one request and its answer."""
        self._requests[route, model, status] += 1
        if route == "infer" and status == 200:
            self._times[model][bisect_left(_BOUNDS, seconds)] += 1
            self._seconds[model] += seconds  # type: ignore[assignment]

    def answered(self, model: str, client: str, rows: int) -> None:
        """Count the rows of one answer."""
        self._rows[model] += rows
        self._releases[client] += rows

    def text(self, now: Mapping[str, Mapping[str, float]]) -> str:
        """All numbers; ``now`` are further ones by name, and by model or client."""
        return "\n".join([*self._counters(), *self._histogram(), *_gauges(now), ""])

    def _counters(self) -> Iterator[str]:
        requests = [(_labels(route=r, model=m, code=str(c)), n) for (r, m, c), n in sorted(self._requests.items())]
        yield from _series("attncem_requests_total", "counter", "Requests by route, model and status", requests)
        rows = [(_labels(model=model), n) for model, n in sorted(self._rows.items())]
        yield from _series("attncem_rows_total", "counter", "Rows answered by model", rows)
        releases = [(_labels(client=client), n) for client, n in sorted(self._releases.items())]
        yield from _series("attncem_releases_total", "counter", "Rows answered by client", releases)

    def _histogram(self) -> Iterator[str]:
        name = "attncem_request_seconds"
        lines: list[tuple[str, float]] = []
        for model, counts in sorted(self._times.items()):
            total = 0
            for bound, count in zip((*map(str, _BOUNDS), "+Inf"), counts, strict=True):
                total += count
                lines.append(("_bucket" + _labels(model=model, le=bound), total))
            lines += [("_sum" + _labels(model=model), self._seconds[model]), ("_count" + _labels(model=model), total)]
        yield from _series(name, "histogram", "Time of an answered request, from its first byte", lines)


_FURTHER = {
    "attncem_waiting_requests": ("gauge", "model", "Requests in the queue"),
    "attncem_batches_total": ("counter", "model", "Batches computed"),
    "attncem_budget_used_releases": ("gauge", "client", "Releases counted against a budget, over all starts"),
}
"""Kind, label and meaning of the numbers that others keep."""


def _gauges(now: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for name, values in now.items():
        kind, label, meaning = _FURTHER[name]
        yield from _series(name, kind, meaning, [(_labels(**{label: it}), n) for it, n in values.items()])


def _series(name: str, kind: str, meaning: str, values: Iterable[tuple[str, float]]) -> Iterator[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for rest, value in values:
        yield f"{name}{rest} {value:.17g}"


def _labels(**values: str) -> str:
    escaped = {key: it.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, it in values.items()}
    return "{" + ",".join(f'{key}="{it}"' for key, it in escaped.items()) + "}"
