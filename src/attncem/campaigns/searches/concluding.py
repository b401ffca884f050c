"""The result of a search from its trials: fronts, the best of every accuracy level, and their configurations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attncem.base.shown_paths import shown_path, without_paths_in
from attncem.base.types import RunError
from attncem.campaigns.choosing import Candidate, candidate, choose, undominated
from attncem.config.loading.load import dump_config, load_config
from attncem.config.options.search import UNDEFENDED, Budget, Search
from attncem.records.audit import AuditResult
from attncem.records.campaign_folder import CampaignFolder
from attncem.records.files import explain_os_error, write_atomic, write_json
from attncem.records.findings import Finding
from attncem.records.leaks import LIMIT, say_leak
from attncem.records.ledger import joined
from attncem.records.search import MethodFound, SearchResult, SearchTrial
from attncem.records.study import Arm, AuditKind, Cell
from attncem.records.study.leaking import nats_disagree

RESULT, CHOSEN = "search.json", "chosen"


def judged(folder: CampaignFolder, cell_id: str) -> AuditResult:
    """The audit that judges a trial."""
    (name,) = folder.finished(cell_id).audits.values()
    audit = joined(folder.run_path(cell_id) / "audits" / name)
    assert audit.plan.evaluation == "validation", "the test images must choose nothing"
    return audit


def conclude(
    asked: Search, budget: Budget, folder: CampaignFolder, trials: list[SearchTrial], *, complete: bool
) -> SearchResult:
    """The result of a search so far, written into its folder."""
    undefended = _undefended(folder)
    methods = [_method(name, trials, undefended, asked) for name in asked.methods]
    chosen = dict.fromkeys(cell for method in methods for cell in method.levels.values())
    result = SearchResult(
        name=asked.name,
        budget=str(budget),
        equal_budget=asked.equal_budget,
        undefended=undefended.accuracy,
        levels=dict(asked.levels),
        methods=methods,
        trials=trials,
        files=_files(folder, methods, trials),
        complete=complete,
        folder=str(folder.path),
        choose=asked.choose,
        findings=_contradictions(folder, list(chosen)) if asked.choose == "nats" else [],
    )
    with explain_os_error(folder.path, "finished trials are kept: fix this and run the same command again"):
        write_json(folder.path / RESULT, without_paths_in(_inside(result, folder.path).to_dict()))
    return result


def _contradictions(folder: CampaignFolder, chosen: Sequence[str]) -> list[Finding]:
    """The pairs of chosen trials where other numbers of the leak point another way than the limit."""
    arms = []
    for cell_id in chosen:
        audit, seed = judged(folder, cell_id), folder.cell(cell_id).seed
        arms.append(Arm(cell_id, cell_id, 0, [Cell(cell_id, seed, {AuditKind.of(audit.plan): audit})]))
    return nats_disagree(arms)


def _inside(result: SearchResult, folder: Path) -> SearchResult:
    """The result with paths inside its folder, whose place is private."""
    files = {name: Path(file).relative_to(folder).as_posix() for name, file in result.files.items()}
    return replace(result, folder=shown_path(folder), files=files)


def _undefended(folder: CampaignFolder) -> Candidate:
    (cell,) = (cell for cell in folder.plan.cells if cell.arm == UNDEFENDED)
    if folder.view(cell).state != "done":
        raise RunError(f"stopped before the undefended model was done; resume with: attncem search {folder.path}")
    return candidate(cell.id, judged(folder, cell.id))


def _method(name: str, trials: Sequence[SearchTrial], undefended: Candidate, asked: Search) -> MethodFound:
    tried = [trial for trial in trials if trial.method == name]
    candidates = [
        Candidate(trial.cell, trial.accuracy, trial.error, trial.nats)
        for trial in tried
        if trial.accuracy is not None and trial.error is not None
    ]
    chosen = choose(candidates, undefended.accuracy, asked.levels, asked.choose)
    return MethodFound(
        name=name,
        trials=len(tried),
        failed=sum(trial.state == "failed" for trial in tried),
        seconds=sum(trial.seconds for trial in tried),
        front=[one.name for one in undominated(candidates, asked.choose)],
        levels={level: one.name for level, one in chosen.items()},
    )


def _files(folder: CampaignFolder, methods: Sequence[MethodFound], trials: Sequence[SearchTrial]) -> dict[str, str]:
    """A configuration for every method and level, each with a header that names the source of its numbers."""
    by_cell, files = {trial.cell: trial for trial in trials}, dict[str, str]()
    with explain_os_error(folder.path, "finished trials are kept: fix this and run the same command again"):
        (folder.path / CHOSEN).mkdir(exist_ok=True)
        for method in methods:
            for level, cell_id in method.levels.items():
                name = f"{method.name}-{level}"
                file = folder.path / CHOSEN / f"{name}.yaml"
                write_atomic(file, _configuration(folder, by_cell[cell_id], name, file).encode())
                files[name] = str(file)
    return files


def _configuration(folder: CampaignFolder, trial: SearchTrial, name: str, file: Path) -> str:
    """The configuration of a trial under a new name, as a text for `attncem train`."""
    head = [
        f"attncem train --config {file}",
        f"{trial.cell} of the search {folder.plan.name}: {100 * (trial.accuracy or 0):.1f} % and an attack error of "
        f"{trial.error:.4g} (geometric mean of MSE and structure){_nats(trial)}, on validation images, one seed.",
    ]
    config = load_config(folder.config(trial.cell), {"name": name}).config
    return "".join(f"# {line}\n" for line in head) + dump_config(config)


def _nats(trial: SearchTrial) -> str:
    """The limit on its leak, where the audit has one."""
    return "" if trial.nats is None else f" and a leak of at most {say_leak(LIMIT, trial.nats, unit=True)}"
