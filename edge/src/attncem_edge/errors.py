"""Errors that are a person's to mend: shown without a traceback, exit code 2."""

from __future__ import annotations


class AttncemError(Exception):
    """Root of the errors that are a person's to mend."""


class ConfigError(AttncemError, ValueError):
    """An invalid configuration: names the key, the value and the allowed values."""


class DataError(AttncemError):
    """A data file that is missing, damaged or of the wrong shape: names the file."""


class BundleError(AttncemError):
    """A bundle that is missing, damaged, changed or of another version: names the file."""


class BudgetSpent(AttncemError):
    """A release that the budget does not allow: nothing left the device."""


class ServerError(AttncemError):
    """A server that does not answer, or refuses: names its address and the reason."""
