"""Speed of attncem: every figure is a ratio within one run. `python -m benchmarks --help` lists the parts."""
