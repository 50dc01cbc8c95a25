"""Start the router: `inferencecache-router --help`."""

from __future__ import annotations

from typing import NoReturn

from prometheus_client import CollectorRegistry

from inferencecache.core.index.work import AssignedWork
from inferencecache.core.service import configure_logging, run
from inferencecache.router.following import IndexFollowing
from inferencecache.router.serve import serve
from inferencecache.router.settings import RouterSettings, read_settings


def main() -> NoReturn:
    """Entry point of the console script; never returns."""
    settings = read_settings()
    configure_logging(settings.log_format, settings.log_level)
    run(lambda stop: serve(settings, stop, follow))


def follow(settings: RouterSettings, registry: CollectorRegistry) -> IndexFollowing:
    """The index that the router serves."""
    work = AssignedWork(settings.load_decay_s) if settings.balanced_ranking else None
    return IndexFollowing(settings.nats, settings.assets, settings.ready_timeout_s, registry, work)


if __name__ == "__main__":
    main()
