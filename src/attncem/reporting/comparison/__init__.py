"""Comparisons of runs."""
