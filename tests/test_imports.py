"""The floors: a module imports only from lower floors and its own folder, and torch only where it may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attncem

PACKAGE = Path(attncem.__file__).parent
FLOORS = {
    "types": 0,
    "texts": 0,
    "results": 1,
    "children": 1,
    "config": 2,
    "checkpoints": 3,
    "conditions": 3,
    "files": 2,
    "fingerprints": 2,
    "noise": 2,
    "seeding": 2,
    "statistics": 2,
    "progress": 2,
    "processes": 2,
    "health": 2,
    "metrics": 2,
    "data": 3,
    "models": 3,
    "runs": 4,
    "judges": 3,
    "ledger": 3,
    "working": 3,
    "channels": 3,
    "schedules": 3,
    "engine": 3,
    "pictures": 3,
    "surrogates": 4,
    "penalties": 4,
    "capture": 4,
    "halves": 5,
    "listing": 5,
    "initial": 5,
    "build": 5,
    "campaign_folder": 5,
    "tracking": 5,
    "monitoring": 5,
    "attacks": 6,
    "certificates": 6,
    "probes": 6,
    "objective": 6,
    "opening": 6,
    "training": 7,
    "importing": 7,
    "auditing": 7,
    "inference": 7,
    "reporting": 8,
    "explaining": 9,
    "campaigning": 10,
    "demonstration": 11,
    "commands": 12,
    "cli": 13,
    "__main__": 14,
}
"""Floor of every file or folder of the package; a new one gets its line here."""
WITHOUT_TORCH = (
    "types",
    "children",
    "texts/",
    "results/",
    "config/",
    "files",
    "checkpoints",
    "conditions",
    "fingerprints",
    "noise",
    "metrics",
    "judges",
    "ledger",
    "statistics/",
    "reporting/",
    "commands/",
    "cli",
    "__init__",
    "__main__",
    "runs",
    "listing",
    "working",
    "tracking",
    "seeding",
    "schedules",
    "progress",
    "health",
    "demonstration",
    "campaign_folder",
    "campaigning/",
    "data/__init__",
    "data/specs",
    "data/sources",
    "data/idx",
    "data/cifar",
    "data/folders",
    "data/pictures",
    "data/decoding",
    "data/readers",
    "data/splits",
    "data/groups",
    "data/attributes",
    "data/inspect",
)
"""Files, and folders ending in /, that never import torch when they are imported."""
FILES = sorted(str(file.relative_to(PACKAGE).with_suffix("")) for file in PACKAGE.rglob("*.py"))


def imports(tree: ast.AST, *, top_level_only: bool = False) -> Iterator[str]:
    """Absolute names of the modules a file imports, without those only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from (name for part in node.orelse for name in imports(part, top_level_only=top_level_only))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (top_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, top_level_only=top_level_only)


@cache
def parse(name: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))


def floor_name(module: str) -> str | None:
    """The file or folder of the package that an imported name lies in; None: another package, or the root."""
    parts = module.split(".")
    if parts[0] != "attncem" or len(parts) == 1:
        return None
    return parts[1] if is_module(parts[1]) else None


def is_module(name: str) -> bool:
    return (PACKAGE / f"{name}.py").is_file() or (PACKAGE / name).is_dir()


def problems_of(name: str, tree: ast.Module) -> list[str]:
    home = name.split("/", maxsplit=1)[0]
    used = {below for module in imports(tree) if (below := floor_name(module)) not in (None, home)}
    return [f"{name} (floor {FLOORS[home]}) imports {other}" for other in used if FLOORS[other] >= FLOORS[home]]


def test_every_file_has_a_floor() -> None:
    homes = {name.split("/")[0] for name in FILES} - {"__init__"}
    assert homes == set(FLOORS), "give a new module its floor, and take a removed one out"


def test_a_module_imports_only_from_lower_floors() -> None:
    assert [problem for name in FILES if name != "__init__" for problem in problems_of(name, parse(name))] == []


def test_the_root_imports_nothing_of_the_package_by_itself() -> None:
    assert [module for module in imports(parse("__init__")) if module.startswith("attncem")] == []


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


def test_a_broken_floor_is_found() -> None:
    """The checker itself."""
    upward = ast.parse("def f():\n    from attncem.cli import main\nfrom attncem import auditing\nimport attncem.types")
    assert sorted(problems_of("training", upward)) == [
        "training (floor 7) imports auditing",
        "training (floor 7) imports cli",
    ]
    assert problems_of("surrogates/new", ast.parse("from attncem.surrogates.base import Surrogate")) == []
    exempt = "if TYPE_CHECKING:\n    from attncem.cli import main"
    assert problems_of("types", ast.parse(exempt)) == []
    assert problems_of("models/a", ast.parse("from attncem.runs import free_path")) != [], "same floor, other folder"


def test_torch_is_not_imported_at_module_level() -> None:
    names = [name for name in FILES if lies_in(name, WITHOUT_TORCH)]
    roots = {name: {module.split(".")[0] for module in imports(parse(name), top_level_only=True)} for name in names}
    assert [name for name in names if roots[name] & {"torch", "lightning_fabric", "safetensors"}] == []


def lies_in(name: str, homes: tuple[str, ...]) -> bool:
    """Whether a file is one of the homes, or lies in one that is a folder."""
    return any(name == home or (home.endswith("/") and name.startswith(home)) for home in homes)


def test_the_list_without_torch_names_files() -> None:
    for entry in WITHOUT_TORCH:
        assert (PACKAGE / entry).is_dir() if entry.endswith("/") else entry in FILES, entry


JUDGING = (
    *(
        "results/",
        "texts/",
        "attacks/",
        "probes/",
        "certificates/",
        "auditing/",
        "explaining/",
        "reporting/",
        "commands/",
    ),
    *(
        "opening",
        "judges",
        "ledger",
        "files",
        "checkpoints",
        "conditions",
        "fingerprints",
        "noise",
        "metrics",
        "pictures",
        "inference",
        "cli",
        "campaign_folder",
        "campaigning/",
    ),
)
"""The half that judges models."""


def long_functions(tree: ast.Module) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if (node.end_lineno or 0) - node.lineno >= 50]


def test_files_and_functions_of_the_judging_half_stay_small() -> None:
    names = [name for name in FILES if lies_in(name, JUDGING)]
    lines = {name: len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in names}
    assert [it for it in lines.items() if it[1] > 400] == []
    assert [(name, function) for name in names for function in long_functions(parse(name))] == []
