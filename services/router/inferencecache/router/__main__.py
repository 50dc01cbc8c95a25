"""Start the router: `inferencecache-router --help`."""

from __future__ import annotations

from typing import NoReturn

from inferencecache.core.service import configure_logging, configure_tracing, run
from inferencecache.router.settings import read_settings


def main() -> NoReturn:
    """Entry point of the console script; never returns."""
    settings = read_settings()
    configure_logging(settings.log_format, settings.log_level)
    configure_tracing("inference-cache-router")
    # What compiles the index takes seconds to import; a wrong flag is told at once.
    from inferencecache.router.following import follow  # noqa: PLC0415
    from inferencecache.router.serve import serve  # noqa: PLC0415

    run(lambda stop: serve(settings, stop, follow))


if __name__ == "__main__":
    main()
