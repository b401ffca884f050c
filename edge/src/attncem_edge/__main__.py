"""The command, as python -m attncem_edge."""

from __future__ import annotations

import sys

from attncem_edge.command import main

sys.exit(main())
