"""Results of every verb, one file for each kind; one reader builds them from the type hints. Never imports torch."""
