"""`python -m oncefence.simulator`."""

import sys

from oncefence.simulator.cli import main

sys.exit(main())
