"""What the leader does: every reconciler and projection there is, in one place."""

from __future__ import annotations

from inferencecache.controller.backend.work import backend_work
from inferencecache.controller.index.work import index_work
from inferencecache.controller.intent.work import intent_work
from inferencecache.controller.operating import Operating, Work
from inferencecache.controller.pods.work import pods_work


def work_of(operating: Operating) -> Work:
    """All work, over one operation's means. Within a tick tenants come last [CTL-168]."""
    return together(
        backend_work(operating), pods_work(operating), index_work(operating), intent_work(operating)
    )


def together(*parts: Work) -> Work:
    """The work of several parts as one, in their order."""
    return Work(
        tuple(each for part in parts for each in part.reconcilers),
        tuple(each for part in parts for each in part.projections),
        tuple(each for part in parts for each in part.background),
    )
