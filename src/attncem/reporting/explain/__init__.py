"""The explanation of one image."""
