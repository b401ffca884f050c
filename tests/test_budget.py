"""The budget: a quick test that takes too long is named with its seconds, a slow one is not."""

from __future__ import annotations

import io
from typing import Any

import pytest

from budget import Budget


def report(test: str, when: Any, seconds: float, *marks: str) -> pytest.TestReport:
    keywords = dict.fromkeys(marks, 1)
    return pytest.TestReport(test, (test, 0, test), keywords, "passed", None, when, duration=seconds)


def summary(budget: Budget, config: pytest.Config) -> str:
    out = io.StringIO()
    budget.pytest_terminal_summary(pytest.TerminalReporter(config, out))
    return out.getvalue()


def test_quick_tests_over_the_budget_are_named(request: pytest.FixtureRequest) -> None:
    budget = Budget()
    budget.pytest_runtest_logreport(report("a.py::short", "call", 2.9))
    assert summary(budget, request.config) == "", "nothing is printed where every test is quick"
    budget.pytest_runtest_logreport(report("a.py::short", "teardown", 9.0))
    budget.pytest_runtest_logreport(report("a.py::slow", "call", 9.0, "slow"))
    for when in ("setup", "call"):
        budget.pytest_runtest_logreport(report("a.py::with_its_fixture", when, 2.0))
    budget.pytest_runtest_logreport(report("a.py::long", "call", 7.25))
    title, *lines = summary(budget, request.config).strip().splitlines()
    assert "over the budget of 3 s" in title
    assert lines == ["a.py::long 7.2", "a.py::with_its_fixture 4.0"]


def test_the_session_has_a_budget(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("budget of quick tests")
