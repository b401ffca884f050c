"""What the command says by itself: lines beside the tables, and the tables of `data` and `runs`."""

from __future__ import annotations

COMMAND: dict[str, str] = {
    "command.trained": "{path}: validation accuracy {accuracy:.1f} %. Next: attncem audit {path}",
    "command.warning": "warning: {run}: {said}",
    "command.note": "note: {said}",
    "command.audit_folder": "rows, scores of every image and pictures: {folder}",
    "command.page": "page: {path}",
    "command.report": "report: {path}",
    "command.no_runs": "no runs in {folder}",
    "command.interrupted": "interrupted{go_on}",
    "command.go_on.train": "; go on later with: attncem train --resume RUN",
    "command.go_on.audit": "; the rows that were finished are kept, and the same command goes on with the others",
    "command.data.columns": "data set|images|classes|train|test|state",
    "command.runs.columns": "run|status|surrogate|weight|epoch|validation accuracy|audits",
}
