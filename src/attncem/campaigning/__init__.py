"""Campaigns: many runs and their audits as one declaration, that goes on wherever it was."""

from __future__ import annotations
