"""`python -m sayso` and the installed `sayso`: the command line, see `sayso.cli`.

`sayso hook HOST` runs before every tool call of a coding agent, so it answers without importing the command line.
"""

import sys


def main() -> int:
    """Run one command and return its exit code."""
    if sys.argv[1:2] == ["hook"]:
        from sayso.integrations import agenthooks

        code = agenthooks.main(sys.argv[2:])
        if code is not None:
            return code
    from sayso.cli import main as all_commands

    return all_commands()


if __name__ == "__main__":
    sys.exit(main())
