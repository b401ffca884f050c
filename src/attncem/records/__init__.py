"""Results: what the verbs find, one file for each kind; read by one reader from the type hints. Never imports torch."""
