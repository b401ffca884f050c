"""How fast attncem is: every figure a ratio within one run. `python -m benchmarks --help` lists the parts."""
