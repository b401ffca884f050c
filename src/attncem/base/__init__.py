"""What every room shares: errors, seeds, progress, processes, texts, records; torch only in `pictures`."""
