"""A budget for quick tests: those that take longer are named at the end of a session."""

from __future__ import annotations

from collections import defaultdict

import pytest

SECONDS = 3.0
"""What a quick test may take, its fixtures included."""


class Budget:
    """Adds up the seconds of every quick test; with several workers the reports of all come to one place."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when in ("setup", "call") and "slow" not in report.keywords:
            self.seconds[report.nodeid] += report.duration

    def lines(self) -> list[str]:
        """One line for each test over the budget, the longest first."""
        over = [(seconds, test) for test, seconds in self.seconds.items() if seconds > SECONDS]
        return [f"{test} {seconds:.1f}" for seconds, test in sorted(over, reverse=True)]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if lines := self.lines():
            terminalreporter.section(f"over the budget of {SECONDS:g} s")
            terminalreporter.write("\n".join(lines) + "\n")
