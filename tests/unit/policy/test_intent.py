"""What is in force after reading the policy bucket."""

from __future__ import annotations

import msgspec
import pytest

from inferencecache.core.policy import Intent, encode_policy_set, resolve, resolve_topology
from inferencecache.core.templates import resolve_template
from inferencecache.schemas.ids import TenantId
from tests.support.resources import policy, template, tenant, topology

TEAM = TenantId("team-a")


def value(*minimum: int) -> bytes:
    resources = [policy(minimumPrefixTokens=number) for number in minimum]
    return encode_policy_set(resolve([*resources, tenant("a/x", "t", 5)]).policy_set)


@pytest.mark.rule("IDX-119")
def test_before_the_first_set_nobody_has_a_policy() -> None:
    intent = Intent()
    assert intent.revision == 0
    assert intent.policies.policy(TEAM) is None
    assert intent.policies.quota(TenantId("t")) is None


@pytest.mark.rule("IDX-119")
def test_a_set_replaces_the_previous_one_whole() -> None:
    intent = Intent()
    assert intent.set_policies(value(200), 7)
    assert intent.revision == 7
    assert intent.policies.policy(TEAM) is not None
    assert intent.set_policies(value(), 8)
    assert intent.policies.policy(TEAM) is None
    assert intent.policies.quota(TenantId("t")) == 5


@pytest.mark.rule("IDX-128")
@pytest.mark.parametrize("refused", [b'{"version":9,"policies":[]}', b'{"version":8,"later":1}', b"{"])
def test_a_set_that_is_refused_leaves_the_previous_one_in_force(refused: bytes) -> None:
    intent = Intent()
    intent.set_policies(value(200), 7)
    before = intent.policy_set
    assert not intent.set_policies(refused, 8)
    assert (intent.policy_set, intent.revision) == (before, 7)
    assert "revision 8 refused" in intent.refused
    assert intent.set_policies(value(1), 9)
    assert (intent.revision, intent.refused) == (9, "")


def test_templates_and_topologies_come_and_go_by_their_names() -> None:
    intent = Intent()
    assert intent.template("serving/helpdesk") is None
    assert intent.set_template("serving/helpdesk", msgspec.json.encode(resolve_template(template("hello"))))
    made = intent.template("serving/helpdesk")
    assert made is not None
    assert made.render({}).text == "hello"
    assert not intent.set_template("serving/helpdesk", b"{")
    assert intent.template("serving/helpdesk") is made
    assert intent.set_template("serving/helpdesk", None)
    assert intent.template("serving/helpdesk") is None

    resolved = resolve_topology(topology(transport="NIXL"))
    assert intent.set_topology("serving/chat-pd", msgspec.json.encode(resolved))
    assert intent.topology("serving/chat-pd") == resolved
    for unreadable in (b"[]", b'{"name":"\xff"}', b'{"x":' + b"[" * 100_000):
        assert not intent.set_topology("serving/chat-pd", unreadable)
        assert not intent.set_template("serving/helpdesk", unreadable)
    assert intent.set_topology("serving/chat-pd", None)
    assert intent.topology("serving/chat-pd") is None
