"""Exported models: bundles, the server that answers with them, and their clients."""
