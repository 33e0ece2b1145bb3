"""`python -m core.cli`: the command line without the installed script."""

import sys

from core.cli import main

sys.exit(main())
