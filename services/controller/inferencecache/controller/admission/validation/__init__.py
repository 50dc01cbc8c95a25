"""Judging custom resources: pure functions from JSON documents to violations [ADM-08..16].

`backend` puts the rules of a CacheBackend together; each other module holds the rules of one part of
it. `policies` judges CachePolicy and CacheTenant by the rules that hold without a cluster too. `seam`
lets go what was stored already.
"""

from __future__ import annotations

from inferencecache.controller.admission.validation.backend import backend_needs_siblings, judge_backend
from inferencecache.controller.admission.validation.policies import judge_policy, policy_needs_siblings
from inferencecache.controller.admission.validation.seam import WITHOUT_VALUE, value_at

__all__ = [
    "WITHOUT_VALUE",
    "backend_needs_siblings",
    "judge_backend",
    "judge_policy",
    "policy_needs_siblings",
    "value_at",
]
