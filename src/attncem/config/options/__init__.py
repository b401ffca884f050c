"""Options of everything: one class a kind, strict and frozen."""
