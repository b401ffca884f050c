#!/usr/bin/env python3
"""Measure the package: top-level entries, lines, sizes of files and functions, cycles, upward imports, public names.

    python scripts/measure_house.py [CHECKOUT ...] [--tests]

One column per checkout, to compare two states. ``--tests`` also times `dev.py test` and `dev.py test --slow` there:
only on an idle machine, and after `dev.py check` has made the environment.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOMS = (
    "base",
    "config",
    "records",
    "data",
    "models",
    "training",
    "judging",
    "plugins",
    "testing",
    "reporting",
    "campaigns",
    "deploy",
    "live",
    "cli",
)


def measures(checkout: Path) -> dict[str, str]:
    """Every number by its title."""
    package = checkout / "src/attncem"
    files = {file: file.read_text(encoding="utf-8") for file in sorted(package.rglob("*.py"))}
    trees = {file: ast.parse(text) for file, text in files.items()}
    lines = {file: len(text.splitlines()) for file, text in files.items()}
    texts = sum(count for file, count in lines.items() if "texts" in file.relative_to(package).parts)
    graph = {name_of(file, package): imports_of(tree, package) for file, tree in trees.items()}
    functions = [size for tree in trees.values() for size in sizes_of_functions(tree)]
    entries = [entry for entry in package.iterdir() if entry.name not in ("__pycache__", "py.typed")]
    others = {top: total_of(checkout / top) for top in ("tests", "scripts", "benchmarks")}
    return {
        "entries at the top": str(len(entries)),
        "files": str(len(files)),
        "lines in src": str(sum(lines.values())),
        "lines in src without the catalogue": str(sum(lines.values()) - texts),
        **{f"lines in {top}": str(count) for top, count in others.items()},
        **lines_by_room(lines, package),
        "lines of a file, median / 90 % / max": spread(list(lines.values())),
        "lines of a function, median / 90 % / max": spread(functions),
        "modules in a cycle": str(sum(map(len, cycles(graph)))),
        "upward imports, type-only included": upward(graph),
        "public names": str(len(public_names(trees[package / "__init__.py"]))),
    }


def name_of(file: Path, package: Path) -> str:
    """The dotted name of a module, without the package."""
    return ".".join(file.relative_to(package).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def total_of(folder: Path) -> int:
    """Lines of Python in a folder."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in folder.rglob("*.py"))


def lines_by_room(lines: Mapping[Path, int], package: Path) -> dict[str, str]:
    """Lines of every top-level folder, the largest first; top-level modules count together."""
    rooms: Counter[str] = Counter()
    for file, count in lines.items():
        parts = file.relative_to(package).parts
        rooms[parts[0] if len(parts) > 1 else "(modules at the top)"] += count
    return {f"  {room}": str(count) for room, count in rooms.most_common()}


def spread(sizes: list[int]) -> str:
    """Median, 90th percentile and maximum."""
    ninth = statistics.quantiles(sizes, n=10)[-1]
    return f"{statistics.median(sizes):.0f} / {ninth:.0f} / {max(sizes)}"


def sizes_of_functions(tree: ast.Module) -> Iterator[int]:
    """Lines of every function without its docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            is_docstring = ast.get_docstring(node) is not None
            hidden = (first.end_lineno or first.lineno) - first.lineno + 1 if is_docstring else 0
            yield (node.end_lineno or node.lineno) - node.lineno + 1 - hidden


def imports_of(tree: ast.Module, package: Path) -> set[str]:
    """The package's modules that a module imports anywhere, including imports for types."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    inner = {name.removeprefix("attncem.") for name in names if name.startswith("attncem.")}
    return {module for name in inner if (module := _module(name, package))}


def _module(name: str, package: Path) -> str:
    """The longest prefix of a dotted name that is a module."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = package.joinpath(*parts[:end])
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(parts[:end])
    return ""


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules that import each other in a cycle; lazy and type-only imports count."""
    reach = {name: _reachable(name, graph) for name in graph}
    groups: list[set[str]] = []
    for name in graph:
        group = {other for other in reach[name] if name in reach.get(other, ())}
        if group and group not in groups:
            groups.append(group)
    return groups


def _reachable(name: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(graph[name])
    while waiting:
        other = waiting.pop()
        if other not in seen:
            seen.add(other)
            waiting += graph.get(other, ())
    return seen


def upward(graph: Mapping[str, set[str]]) -> str:
    """Imports from a higher room; a dash where the package has no rooms."""
    rooms = {name.partition(".")[0] for name in graph if "." in name}
    if not rooms <= set(ROOMS):
        return "–"
    pairs = [(name.partition(".")[0], other.partition(".")[0]) for name in graph for other in graph[name]]
    return str(sum(ROOMS.index(other) > ROOMS.index(room) for room, other in pairs if room in rooms))


def public_names(tree: ast.Module) -> list[str]:
    """`attncem.__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def timed(checkout: Path, *words: str) -> str:
    """Seconds of a command of dev.py, and its exit code if it is not 0."""
    started = time.monotonic()
    done = subprocess.run([sys.executable, "dev.py", *words], cwd=checkout, capture_output=True, check=False)
    failed = f" (exit {done.returncode})" if done.returncode else ""
    return f"{time.monotonic() - started:.0f}{failed}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path(__file__).resolve().parent.parent])
    parser.add_argument("--tests", action="store_true", help="time the tests too")
    asked = parser.parse_args()
    columns = [measures(checkout) for checkout in asked.checkouts]
    if asked.tests:
        for checkout, column in zip(asked.checkouts, columns, strict=True):
            column["seconds of dev.py test"] = timed(checkout, "test")
            column["seconds of dev.py test --slow"] = timed(checkout, "test", "--slow")
    titles = dict.fromkeys(title for column in columns for title in column)
    width = max(map(len, titles))
    for title in titles:
        print(f"{title:{width}}", *(f"{column.get(title, '–'):>18}" for column in columns))


if __name__ == "__main__":
    main()
