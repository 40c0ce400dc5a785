"""`python -m tuner`: the command line, for where the console script is not on the path."""

import sys

from tuner.cli import main

if __name__ == "__main__":
    sys.exit(main())
