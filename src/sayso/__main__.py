"""`python -m sayso`: the command line, see `sayso.cli`."""

import sys

from sayso.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
