"""Start the indexer: `inferencecache-indexer --help`."""

from __future__ import annotations

from typing import NoReturn

from inferencecache.core.service import configure_logging, configure_tracing, run
from inferencecache.indexer.settings import read_settings


def main() -> NoReturn:
    """Entry point of the console script; never returns."""
    settings = read_settings()
    configure_logging(settings.log_format, settings.log_level)
    configure_tracing("inference-cache-indexer")
    # What compiles the index takes seconds to import; a wrong flag is told at once.
    from inferencecache.indexer.serve import serve  # noqa: PLC0415

    run(lambda stop: serve(settings, stop))


if __name__ == "__main__":
    main()
