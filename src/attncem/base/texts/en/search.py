"""What a search says: how its trials end, and what came out."""

from __future__ import annotations

SEARCH: dict[str, str] = {
    "search.refused": "{cell}: cannot be run, so it counts as failed: {reason}",
    "search.ended.done": "{cell}: {accuracy:.1f} %, attack error {error:.4g}; {done} trials have ended",
    "search.ended.failed": "{cell}: failed: {reason}; {done} trials have ended",
    "search.methods.columns": "method|trials|failed|minutes|not beaten",
    "search.levels.columns": "level|method|accuracy %|attack error|configuration",
    "search.level": "{level} (within {points:g} points)",
    "search.undefended": "Undefended: {accuracy:.1f} %. All numbers are of validation images, one seed; "
    "the attack error is the geometric mean of MSE and structure error under the strongest attack.",
    "search.budget.equal": "Every method had the same share of {budget}.",
    "search.budget.unequal": "{budget} were spent where they gained most: the methods had different shares.",
    "search.stopped": "Stopped before the budget was spent; go on with: attncem search {folder}",
    "search.folder": "trials, and the whole result in search.json: {folder}",
}
