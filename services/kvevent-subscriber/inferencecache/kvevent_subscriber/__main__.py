"""`kvevent-subscriber`: the sidecar as a process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from inferencecache.core.service import configure_logging, run
from inferencecache.kvevent_subscriber.settings import read_settings
from inferencecache.kvevent_subscriber.sidecar import Sidecar


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `kvevent-subscriber`."""
    settings = read_settings(arguments)
    configure_logging(settings.log_format, settings.log_level)

    async def work(stop: asyncio.Event) -> int:
        return await Sidecar(settings).run(stop)

    run(work)


if __name__ == "__main__":
    main()
