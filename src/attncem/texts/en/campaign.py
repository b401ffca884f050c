"""What campaigns say: their progress, their tables, and what became of their cells."""

from __future__ import annotations

CAMPAIGN: dict[str, str] = {
    "campaign.scaled": "{cell}: {epochs} epochs, {factor:.2f} times as many as asked for: as long as {arm} trains",
}
