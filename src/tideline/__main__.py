"""`python -m tideline` is the command `tideline`."""

from __future__ import annotations

from tideline.cli.main import main

if __name__ == "__main__":
    main()
