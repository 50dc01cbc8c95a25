"""Start the controller: `inferencecache-controller --help`."""

from __future__ import annotations

from typing import NoReturn

from inferencecache.controller.serve import serve
from inferencecache.controller.settings import read_settings
from inferencecache.core.service import configure_logging, run


def main() -> NoReturn:
    """Entry point of the console script; never returns."""
    settings = read_settings()
    configure_logging(settings.log_format, settings.log_level)
    run(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    main()
