"""The rooms: a module imports only from its own room and lower ones, also for types; torch only where it may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attncem
from scripts.measure_house import ROOMS

PACKAGE = Path(attncem.__file__).parent
WITHOUT_TORCH = (
    *("__init__", "__main__", "config/", "records/", "campaigns/", "cli/main", "cli/verbs/", "deploy/serving/"),
    *("base/__init__", "base/types", "base/seeding", "base/progress", "base/working", "base/record", "base/plugins"),
    *("base/texts/", "data/__init__", "data/specs", "data/sources", "data/idx", "data/cifar", "data/folders"),
    *("data/readers", "data/splits", "data/groups", "data/attributes"),
    *(
        "data/inspect",
        "models/__init__",
        "models/onnx_file",
        "models/onnx_session",
        "models/onnx_child",
        "training/__init__",
        "training/schedules",
    ),
    *("training/health", "training/tracking", "judging/__init__", "judging/judges", "judging/conditions"),
    *(
        "reporting/__init__",
        "reporting/campaign/",
        "reporting/card",
        "reporting/card_words",
        "reporting/comparison/",
        "reporting/explain/page",
    ),
    *("reporting/figures", "reporting/fonts", "reporting/html", "reporting/junit", "judging/grammar"),
    *("reporting/notebook", "reporting/runs/", "reporting/table_formats", "reporting/wording"),
    *("live/__init__", "live/app", "live/facts", "live/loading", "live/page", "live/sources"),
)
"""Files, and folders ending in /, that never import torch when they are imported."""
SMALL = ("records/", "judging/", "reporting/", "campaigns/", "deploy/", "live/", "cli/", "base/texts/")
"""Where files and functions have a limit: the half that judges models."""
FILES = sorted(str(file.relative_to(PACKAGE).with_suffix("")) for file in PACKAGE.rglob("*.py"))


def imports(tree: ast.AST, *, top_level_only: bool = False, type_only: bool = True) -> Iterator[str]:
    """Absolute names of the modules that a file imports."""
    for node in (node for node in ast.iter_child_nodes(tree) if not isinstance(node, ast.expr)):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not type_only:
            for part in node.orelse:
                yield from imports(part, top_level_only=top_level_only, type_only=type_only)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, top_level_only=top_level_only, type_only=type_only)


@cache
def source(name: str) -> str:
    return (PACKAGE / f"{name}.py").read_text(encoding="utf-8")


@cache
def parse(name: str) -> ast.Module:
    return ast.parse(source(name))


def room_of(module: str) -> str | None:
    """The room that an imported name lies in; None: another package, or the root."""
    first, _, rest = module.partition(".")
    room = rest.partition(".")[0]
    return room if first == "attncem" and (PACKAGE / room).is_dir() and room else None


def upward(name: str, tree: ast.Module) -> list[str]:
    home = name.split("/", maxsplit=1)[0]
    used = {room for module in imports(tree) if (room := room_of(module)) not in (None, home)}
    return [f"{name} imports {room}" for room in sorted(used) if ROOMS.index(room) > ROOMS.index(home)]


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or (place.endswith("/") and name.startswith(place)) for place in places)


def test_every_folder_of_the_package_is_a_room() -> None:
    folders = {entry.name for entry in PACKAGE.iterdir() if entry.is_dir()} - {"__pycache__"}
    assert folders == set(ROOMS), "a new room gets its place in ROOMS and in docs/architecture.md"
    assert {name for name in FILES if "/" not in name} == {"__init__", "__main__"}, "a module has a room"


def test_a_module_imports_only_from_its_room_and_lower_ones() -> None:
    assert [problem for name in FILES if "/" in name for problem in upward(name, parse(name))] == []


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, however indirectly (Tarjan)."""
    numbers: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = low[name] = len(numbers)
        stack.append(name)
        for other in graph[name]:
            if other not in numbers:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == numbers[name]:
            group = stack[stack.index(name) :]
            del stack[-len(group) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in graph:
        if name not in numbers:
            visit(name)
    return groups


def run_time_imports(name: str) -> set[str]:
    """The modules of the package that a file imports when it is imported."""
    modules = {f"attncem.{file.replace('/', '.')}".removesuffix(".__init__"): file for file in FILES}
    names = set(imports(parse(name), top_level_only=True, type_only=False))
    packages = {module.rpartition(".")[0] for module in names & modules.keys()}  # `from package import module`
    return {modules[module] for module in names & modules.keys() - packages} - {name, "__init__"}


def test_no_modules_import_each_other() -> None:
    assert cycles({name: run_time_imports(name) for name in FILES}) == []


def test_the_root_imports_nothing_of_the_package_by_itself() -> None:
    assert [m for m in imports(parse("__init__"), type_only=False) if m.startswith("attncem")] == []


def test_the_root_is_imported_only_for_its_version() -> None:
    for name in FILES:
        tree = parse(name)
        if "attncem" not in set(imports(tree)):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "attncem":
                assert node.attr == "__version__", f"{name} uses attncem.{node.attr}"
            if isinstance(node, ast.ImportFrom) and node.module == "attncem":
                assert [alias.name for alias in node.names] == ["__version__"], name


def test_the_checkers_find_what_is_wrong() -> None:
    lazily = "def f():\n    from attncem.cli.main import main\nfrom attncem import judging\nimport attncem.base.types"
    assert upward("training/a", ast.parse(lazily)) == ["training/a imports cli", "training/a imports judging"]
    assert upward("training/new", ast.parse("from attncem.training.surrogates.base import Surrogate")) == []
    typed = "if TYPE_CHECKING:\n    from attncem.cli.main import main"
    assert upward("base/types", ast.parse(typed)) == ["base/types imports cli"], "type-only imports count"
    assert list(imports(ast.parse(typed), type_only=False)) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [["b", "c"]]


def test_torch_is_not_imported_at_module_level() -> None:
    heavy = {"torch", "lightning_fabric", "safetensors"}
    for name in (name for name in FILES if within(name, WITHOUT_TORCH)):
        names = imports(parse(name), top_level_only=True, type_only=False)
        assert not heavy & {module.split(".")[0] for module in names}, name


def test_the_list_without_torch_names_files() -> None:
    for entry in WITHOUT_TORCH:
        assert (PACKAGE / entry).is_dir() if entry.endswith("/") else entry in FILES, entry


def test_files_and_functions_of_the_judging_half_stay_small() -> None:
    for name in (name for name in FILES if within(name, SMALL)):
        assert len(source(name).splitlines()) <= 400, name
        functions = [n for n in ast.walk(parse(name)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert [n.name for n in functions if (n.end_lineno or 0) - n.lineno >= 50] == [], name
