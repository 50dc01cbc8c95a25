"""Engines whose sidecars the webhook injects: from the first prompt to its hint, as engines come and go."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cluster.installation import (
    BLOCK,
    SERVING,
    WITHIN_S,
    Installation,
    Pod,
    answers,
    engine_deployment,
    prompt,
)
from tests.support.kube import ROOT
from tests.support.waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
rule = pytest.mark.rule

GONE_WITHIN_S = 5.0
POLICY_WITHIN_S = 2.0
BACKEND = "cachebackend/hybrid-routing"
REASON = ".status.conditions[?(@.type=='Ready')].reason"
GUIDE = ROOT / "docs" / "start" / "cluster.md"


async def engines(installation: Installation, number: int) -> list[Pod]:
    """All engines, once there are so many."""
    found: list[Pod] = []

    async def are_there() -> bool:
        found[:] = await installation.engines()
        return len(found) == number

    await eventually(are_there, within_s=WITHIN_S, what=f"{number} engines")
    return found


async def served(installation: Installation, pods: list[Pod], first: int) -> dict[str, list[int]]:
    """Each engine serves a prompt of its own and is hinted for it; prompts by engine."""
    prompts = {pod.name: prompt(first + number) for number, pod in enumerate(pods)}
    for pod in pods:
        await installation.complete(pod, prompts[pod.name])
    for name, tokens in prompts.items():
        await installation.hinted(tokens, name)
    return prompts


@rule("OPS-119", "OPS-125")
async def test_engines_that_match_a_backend_get_a_sidecar(installation: Installation) -> None:
    kubectl = installation.serving
    await kubectl.wait(BACKEND, f"jsonpath={{{REASON}}}=AwaitingFirstKVEvent", WITHIN_S)
    assert await kubectl("get", "deployments,services,statefulsets", "--output=name") == ""
    await kubectl.apply(engine_deployment("engines", "hybrid-routing", replicas=2))
    for pod in await engines(installation, 2):
        containers = await kubectl.value(f"pod/{pod.name}", ".spec.containers[*].name")
        assert containers == "vllm kvevent-subscriber"
        mark = await kubectl.value(f"pod/{pod.name}", r".metadata.annotations.inferencecache\.io/injected-by")
        assert mark == f"{SERVING}/hybrid-routing"
    await kubectl.wait(BACKEND, "jsonpath={.status.matchedEnginePods}=2", WITHIN_S)
    events = await kubectl("get", "events", "--output=jsonpath={.items[*].reason}")
    assert "InjectedByCacheBackend" in events.split()


@rule("OPS-119", "CTL-213")
async def test_a_prompt_is_hinted_to_the_pod_that_holds_it(installation: Installation) -> None:
    kubectl = installation.serving
    first, second = await engines(installation, 2)
    await served(installation, [first, second], 1)
    await kubectl.wait(BACKEND, "condition=Ready", WITHIN_S)
    assert await kubectl.value(BACKEND, REASON) == "KVEventsObserved"
    await kubectl.wait(BACKEND, "jsonpath={.status.indexParticipation.lastEventAt}", WITHIN_S)
    counted = ".status.indexParticipation.prefixCount"
    await kubectl.wait(BACKEND, f"jsonpath={{{counted}}}={2 * len(prompt(1)) // BLOCK}", WITHIN_S)


@rule("OPS-119")
async def test_the_guide_ends_with_the_hint_that_it_promises(
    installation: Installation, tmp_path: Path
) -> None:
    """Its last commands as they stand there, from a folder with the file that they name."""
    (tmp_path / "prompt.txt").write_text(", ".join(map(str, prompt(1))))
    forward, ask = re.findall(r"^\$ (.+)$", GUIDE.read_text(), re.MULTILINE)[-2:]
    assert "port-forward service/inference-cache-server 9090" in forward
    program, *words = shlex.split(ask)
    assert program == "inferencecache"
    words = [word.replace("@prompt.txt", f"@{tmp_path / 'prompt.txt'}") for word in words]
    async with installation.forwarded("inference-cache-server", 9090) as address:
        ran = await installation.run(*words, INFERENCECACHE_ROUTER=address)
    assert ran.code == 0, ran.complaint
    assert "PREFIX_MATCH" in ran.told
    assert (await engines(installation, 2))[0].name in ran.told


@rule("CTL-168", "OPS-118")
async def test_the_cache_index_follows(installation: Installation) -> None:
    kubectl = installation.kubectl
    pods = await engines(installation, 2)
    await served(installation, pods, 10)
    total = 4 * len(prompt(1)) // BLOCK
    await kubectl.wait(
        "cacheindex/cluster-default", f"jsonpath={{.status.prefixes.summary.total}}={total}", WITHIN_S
    )

    async def are_listed() -> bool:
        told = await kubectl.value("cacheindex/cluster-default", ".status.replicas[*].id")
        return sorted(told.split()) == [pod.name for pod in pods]

    await eventually(are_listed, within_s=WITHIN_S)


@rule("OPS-73", "OPS-78")
async def test_the_doctor_finds_nothing_wrong(installation: Installation) -> None:
    """As from a machine outside of the cluster's network: forwarded ports, and the observer's password."""
    policy = f"--filename={ROOT / 'deploy' / 'samples' / 'cachepolicy.yaml'}"
    await installation.serving("apply", policy)
    await installation.serving.wait("cachepolicy/lookup", "condition=Propagated", WITHIN_S)
    seen = ""

    async def is_green() -> bool:
        nonlocal seen
        ran = await installation.run(
            *("doctor", "--json", f"--server-endpoint={router}"),
            **observer | {"INFERENCECACHE_NATS_URL": f"nats://{nats}"},
        )
        seen = ran.told + ran.complaint
        return ran.code == 0

    observer = await installation.observer()
    async with (
        installation.forwarded("inference-cache-server", 9090) as router,
        installation.forwarded("inference-cache-nats", 4222) as nats,
    ):
        try:
            await eventually(is_green, within_s=WITHIN_S, what="a doctor without findings")
        except AssertionError as error:
            error.add_note(seen)
            raise
    codes = {finding["code"] for finding in json.loads(seen)["findings"]}
    assert {"SV003", "SN004", "PL002", "PB002", "JS005", "RT004"} <= codes, codes
    await installation.serving("delete", policy)


@rule("CTL-218", "CTL-188")
async def test_lookups_follow_a_policy_within_two_seconds(installation: Installation) -> None:
    """From the moment that the API server had stored it to the first answer of each router by it."""
    (pod, *_) = await engines(installation, 2)
    tokens = prompt(20)
    await installation.complete(pod, tokens)
    await installation.hinted(tokens, pod.name)

    async def follows(router: Pod, reason: str) -> float:
        async for timed in answers(router, tokens):
            if timed.answer.reason_code == reason:
                return timed.at
        raise AssertionError

    async def apply(least: int) -> None:
        policy = {
            "apiVersion": "inferencecache.io/v1alpha1",
            "kind": "CachePolicy",
            "metadata": {"name": "least", "namespace": SERVING},
            "spec": {"minimumMatchedTokens": least, "affinityRouting": "Disabled"},
        }
        await installation.serving.apply(policy)

    routers = await installation.routers()
    await apply(1)
    await installation.serving.wait("cachepolicy/least", "condition=Propagated", WITHIN_S)
    for least, reason in ((len(tokens) + 1, "NO_HINT"), (len(tokens), "PREFIX_MATCH")):
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            following = [group.create_task(follows(router, reason)) for router in routers]
            group.create_task(apply(least))
        (*_, stored) = installation.audited("patch", "cachepolicies", "least")
        assert max(task.result() for task in following) - stored < POLICY_WITHIN_S
    await installation.serving("delete", "cachepolicy", "least")


@rule("CTL-214")
async def test_a_killed_pod_is_gone_from_every_router_within_five_seconds(installation: Installation) -> None:
    """From the moment that the API server had removed it; its successor is hinted, it never again."""
    killed, other = pods = await engines(installation, 2)
    prompts = await served(installation, pods, 30)
    tokens = prompts[killed.name]

    async def is_gone(router: Pod) -> float:
        async for timed in answers(router, tokens):
            if killed.name not in {score.replica_id for score in timed.answer.replica_scores}:
                return timed.at
        raise AssertionError

    routers = await installation.routers()
    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        waiting = [group.create_task(is_gone(router)) for router in routers]
        group.create_task(installation.kill(killed.name, installation.serving))
    (removed,) = installation.audited("delete", "pods", killed.name)
    assert max(task.result() for task in waiting) - removed < GONE_WITHIN_S
    pods = await engines(installation, 2)
    (successor,) = (pod for pod in pods if pod != other)
    await served(installation, [successor], 35)
    await installation.hinted(prompts[other.name], other.name)
    await installation.hinted(tokens)


async def test_engines_that_are_added_are_hinted(installation: Installation) -> None:
    before = {pod.name for pod in await engines(installation, 2)}
    await installation.serving("scale", "deployment/engines", "--replicas=3")
    pods = await engines(installation, 3)
    await served(installation, [pod for pod in pods if pod.name not in before], 40)
    await installation.serving.wait(BACKEND, "jsonpath={.status.matchedEnginePods}=3", WITHIN_S)


async def test_a_rolling_update_leaves_hints_of_the_new_engines_alone(installation: Installation) -> None:
    old = await engines(installation, 3)
    prompts = await served(installation, old, 50)
    await installation.serving("rollout", "restart", "deployment/engines")
    await installation.rolled_out(installation.serving, "deployment/engines")

    async def are_replaced() -> bool:
        names = {pod.name for pod in await installation.engines()}
        return len(names) == len(old) and not names & prompts.keys()

    await eventually(are_replaced, within_s=WITHIN_S)
    for tokens in prompts.values():
        await installation.hinted(tokens)
    new = await served(installation, await engines(installation, 3), 55)
    assert not new.keys() & prompts.keys()


async def test_engines_that_are_taken_away_are_hinted_no_more(installation: Installation) -> None:
    prompts = await served(installation, await engines(installation, 3), 60)
    await installation.serving("scale", "deployment/engines", "--replicas=2")
    kept = {pod.name for pod in await engines(installation, 2)}
    for name, tokens in prompts.items():
        await installation.hinted(tokens, *({name} & kept))
