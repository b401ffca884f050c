"""The report of single runs."""
