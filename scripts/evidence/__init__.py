"""The parts of docs/results.md, each written from the committed files of results/ alone."""
