"""`python -m inferencecache.cli` is `inferencecache`."""

from __future__ import annotations

from inferencecache.cli.app import main

if __name__ == "__main__":
    main()
