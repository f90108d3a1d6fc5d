"""`python -m oncefence.app.cli`: the program where its script is not on the path."""

import sys

from oncefence.app.cli import main

sys.exit(main())
