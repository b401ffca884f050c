#!/usr/bin/env python3
"""Write the tables of docs/formats.md from the classes that read and write the files.

The tables of a folder are between `<!-- records: FOLDER -->` and `<!-- end -->`: one for each of its files, then one
for each class that these hold. A test compares the page with the output of this script.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from attncem.records.audit import AuditPlan, Row
from attncem.records.campaign import ArchiveList, CampaignPlan, Event, Failure, Finished
from attncem.records.on_device import Choice
from attncem.records.run import DataFacts
from attncem.records.run_files import BestFacts, CheckpointFacts, Manifest, TimingLine, ValidationLine, WarningLine
from attncem.records.shared_scores import Shared
from attncem_edge.manifest import Manifest as BundleManifest

PAGE = Path(__file__).parent.parent / "docs/formats.md"
FILES: dict[str, dict[str, type]] = {
    "run": {
        "manifest.json of a run": Manifest,
        "Its key data": DataFacts,
        "checkpoint.json": CheckpointFacts,
        "best.json": BestFacts,
        "on_device.json": Choice,
        "metrics.jsonl: a validation": ValidationLine,
        "metrics.jsonl: a warning": WarningLine,
        "timing.jsonl": TimingLine,
    },
    "audit": {"audit.json": AuditPlan, "ROW.json": Row, "joined.json": Shared},
    "campaign": {
        "campaign.json": CampaignPlan,
        "cells/ID.json": Finished,
        "failures/ID.json": Failure,
        "log.jsonl": Event,
        "archive.json": ArchiveList,
    },
    "bundle": {"manifest.json of a bundle": BundleManifest},
}
"""The class of each file, by folder."""
_WORDS: dict[Any, str] = {str: "text", bool: "true or false", int: "whole number", float: "number", Any: "any"}
_MARKER = re.compile(r"(<!-- records: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(text: str) -> str:
    """The page with every table from the current classes."""
    return _MARKER.sub(lambda marker: f"{marker[1]}\n{_folder(marker[2])}\n\n{marker[3]}", text)


def _folder(name: str) -> str:
    """The tables of a folder: its files, then the classes in them that no earlier folder has."""
    earlier = {kind for files in list(FILES.values())[: list(FILES).index(name)] for kind in closure(files.values())}
    files = FILES[name]
    inner = [kind for kind in closure(files.values()) if kind not in earlier and kind not in files.values()]
    parts = [_table(title, kind) for title, kind in files.items()]
    return "\n\n".join([*parts, *(_table(kind.__name__, kind) for kind in inner)])


def closure(kinds: Any) -> list[type]:
    """These classes and all that their fields hold, each once, in order."""
    every: list[type] = []
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop(0)
        if kind not in every:
            every.append(kind)
            waiting += [part for hint in fields_of(kind).values() for part in _classes(hint)]
    return every


def fields_of(kind: type) -> dict[str, Any]:
    """The type of each key, without `further`, which holds the keys of newer versions."""
    hints = get_type_hints(kind)
    return {it.name: hints[it.name] for it in dataclasses.fields(kind) if it.name != "further"}


def _classes(hint: Any) -> list[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [kind for part in get_args(hint) for kind in _classes(part)]


def _table(title: str, kind: type) -> str:
    defaults = {it.name: _default(it) for it in dataclasses.fields(kind)}
    rows = [f"| `{name}` | {words(hint)} | {defaults[name]} |" for name, hint in fields_of(kind).items()]
    about = " ".join(inspect.cleandoc(kind.__doc__ or "").replace("``", "`").split())
    return "\n".join([f"### {title}", about, "", "| key | value | if missing |", "|---|---|---|", *rows])


def words(hint: Any) -> str:
    """A type in words."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if part is type(None) else words(part) for part in parts)
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is list:
        return f"list of {words(parts[0])}"
    if origin in (dict, Mapping):
        return f"mapping of text to {words(parts[1])}"
    return _WORDS.get(hint) or _linked(hint)


def _linked(kind: type) -> str:
    titles = {of: title for files in FILES.values() for title, of in files.items()}
    title = titles.get(kind, kind.__name__)
    anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
    return f"[{title}](#{anchor})"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    elif field.default is not dataclasses.MISSING:
        value = field.default
    else:
        return "refused"
    return "its defaults" if dataclasses.is_dataclass(value) else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{PAGE} is up to date")
