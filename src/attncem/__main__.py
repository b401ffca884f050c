"""`python -m attncem` is the command `attncem`."""

import sys

from attncem.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
