"""`python -m repsynth`."""

import sys

from repsynth.cli import main

sys.exit(main())
