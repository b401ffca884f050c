"""The live page: a picture stays on the page, and the page shows what leaves it and what an audited attack rebuilds."""
