"""Options of everything, and the way from a YAML and overrides to validated ones. Never imports torch."""
