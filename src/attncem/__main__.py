"""`python -m attncem` is the command `attncem`."""

import sys

from attncem.cli import main

if __name__ == "__main__":
    sys.exit(main())
