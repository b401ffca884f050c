"""Data sets: facts, readers, splits by fixed index, device-resident batches and augmentations."""
