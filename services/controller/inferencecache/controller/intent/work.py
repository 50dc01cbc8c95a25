"""All work on what people want, over one bucket."""

from __future__ import annotations

import time

from inferencecache.controller.intent.bucket import IntentBucket
from inferencecache.controller.intent.cache_policies import CachePolicyStatuses
from inferencecache.controller.intent.cache_tenants import CacheTenantStatuses
from inferencecache.controller.intent.pd_topologies import PublishedTopologies
from inferencecache.controller.intent.policy_set import THE_SET, PolicySetPublisher
from inferencecache.controller.intent.prompt_templates import PublishedTemplates
from inferencecache.controller.intent.published import PublishedObjects
from inferencecache.controller.operating import Operating, Work
from inferencecache.core.kube.kinds import PD_TOPOLOGIES, PROMPT_TEMPLATES, ObjectKey
from inferencecache.core.log.subjects import POLICY_KEY, UnknownSubjectError, parse_policy_key
from inferencecache.schemas.members import RouterMember


def intent_work(operating: Operating) -> Work:
    """Reconcilers and projections over the means of an operation."""

    def routers() -> list[RouterMember]:
        members = operating.presence.membership.alive(time.monotonic())
        return [member for member in members if isinstance(member, RouterMember)]

    def changed(key: str) -> None:
        if key == POLICY_KEY:
            operating.mark(PolicySetPublisher.name, THE_SET)
            return
        try:
            family, ids = parse_policy_key(key)
        except UnknownSubjectError:
            return
        for kind, of in ((PROMPT_TEMPLATES, "template"), (PD_TOPOLOGIES, "topology")):
            if family == of:
                operating.mark(kind.plural, ObjectKey(*ids))

    bucket = IntentBucket(operating.log, changed, operating.may_write, operating.lay_again)
    publisher = PolicySetPublisher(
        operating,
        bucket,
        operating.settings.push_interval_s,
        lambda kind, key: operating.mark(kind.plural, key),
    )
    tenants = CacheTenantStatuses(
        operating, publisher, routers, lambda key: operating.mark(CacheTenantStatuses.name, key)
    )
    topologies = PublishedTopologies(
        operating.observed, lambda key: operating.mark(PD_TOPOLOGIES.plural, key)
    )
    return Work(
        reconcilers=(
            publisher,
            CachePolicyStatuses(operating, publisher, routers),
            tenants,
            PublishedObjects(operating, bucket, PublishedTemplates(), routers),
            PublishedObjects(operating, bucket, topologies, routers),
        ),
        projections=(tenants, topologies),
        background=(bucket.run,),
    )
