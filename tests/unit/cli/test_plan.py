"""The plan of the local system: well-known addresses, and others where those are taken."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from inferencecache.cli.stack.plan import Plan, Program, StackSettings, nats_config, plan_stack
from inferencecache.cli.stack.ports import Ports


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def plan(**settings: object) -> Plan:
    return plan_stack(StackSettings(Path("/state"), **settings), Ports(well_known=False))  # type: ignore[arg-type]


def option(program: Program, name: str) -> str:
    """Value of `--name value` or `--name=value`."""
    for position, argument in enumerate(program.command):
        if argument == name:
            return program.command[position + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    raise KeyError(name)


def test_a_taken_port_is_replaced_by_a_free_one_and_said(listener: socket.socket) -> None:
    taken = listener.getsockname()[1]
    ports = Ports()
    assert ports.take(taken) != taken
    assert list(ports.replaced) == [taken]


def test_a_port_is_handed_out_once() -> None:
    ports = Ports(well_known=False)
    chosen = [ports.take(9090) for _ in range(50)]
    assert len(set(chosen)) == len(chosen)
    assert ports.replaced == {}


@pytest.mark.skipif(sys.platform != "linux", reason="there are names of this kind on Linux alone")
def test_a_port_is_handed_out_once_whoever_asks_for_as_long_as_it_is_kept() -> None:
    kept = Ports(well_known=False)
    port = kept.take(0)
    assert Ports().take(port) != port
    del kept
    gc.collect()
    assert Ports().take(port) == port


def test_a_free_port_is_none_that_outgoing_connections_get() -> None:
    ports = Ports(well_known=False)
    assert all(15_000 <= ports.take(9090) < 32_768 for _ in range(50))


def test_every_engine_has_a_sidecar_and_a_twin_in_the_control_group() -> None:
    stack = plan(engines=3)
    names = [program.name for stage in stack.stages for program in stage]
    assert [name for name in names if name.startswith("sidecar")] == ["sidecar-1", "sidecar-2", "sidecar-3"]
    assert len(stack.engines) == len(stack.control) == 3
    engine, twin = stack.program("engine-1"), stack.program("control-1")
    for size in ("--num-blocks", "--block-size", "--prefill-tokens-per-second"):
        assert option(engine, size) == option(twin, size)
    assert option(twin, "--events-endpoint") == ""


def test_a_sidecar_listens_to_its_engine_and_reports_as_its_replica() -> None:
    stack = plan()
    engine, sidecar = stack.program("engine-2"), stack.program("sidecar-2")
    assert option(sidecar, "--engine-endpoint") == option(engine, "--events-endpoint")
    assert option(sidecar, "--replay-endpoint") == option(engine, "--replay-endpoint")
    assert option(sidecar, "--replica-id") == stack.engines[1].replica
    assert option(sidecar, "--engine-metrics-url") == f"{stack.engines[1].url}/metrics"
    assert option(sidecar, "--nats-url") == stack.nats_url


def test_a_broken_event_path_leaves_sidecars_where_no_engine_publishes() -> None:
    stack = plan(break_events=True)
    endpoints = {option(stack.program(engine.name), "--events-endpoint") for engine in stack.engines}
    assert option(stack.program("sidecar-1"), "--engine-endpoint") not in endpoints
    assert option(stack.program("sidecar-1"), "--replay-endpoint") == ""


def test_routers_and_engines_agree_on_the_block_size() -> None:
    stack = plan(block_size=32)
    assert option(stack.program("router-1"), "--engine-block-size") == "32"
    assert option(stack.program("engine-1"), "--block-size") == "32"


def test_an_indexer_is_ready_before_anybody_who_needs_its_streams_starts() -> None:
    stages = [{program.name for program in stage} for stage in plan().stages]
    order = {name: place for place, names in enumerate(stages) for name in names}
    assert order["nats"] < order["indexer-1"] < min(order["router-1"], order["sidecar-1"])


def test_two_indexers_stand_in_for_each_other_unless_another_number_is_asked_for() -> None:
    assert [indexer.name for indexer in plan().indexers] == ["indexer-1", "indexer-2"]
    stack = plan(indexers=3)
    addresses = {option(stack.program(each.name), "--http-bind-address") for each in stack.indexers}
    assert addresses == {each.http for each in stack.indexers}
    assert len(addresses) == 3


def test_further_indexers_find_the_kernels_that_the_first_has_compiled() -> None:
    stages = [{program.name for program in stage} for stage in plan().stages]
    assert next(stage for stage in stages if "indexer-2" in stage) is not next(
        stage for stage in stages if "indexer-1" in stage
    )


def test_the_server_takes_large_messages_and_syncs_each_second() -> None:
    config = nats_config(plan(), Path("/state"))
    assert "max_payload: 8388608" in config
    assert "sync_interval: 1s" in config
    assert 'store_dir: "/state/jetstream"' in config


def test_a_gateway_comes_last_and_asks_every_router_about_every_engine() -> None:
    stack = plan(engines=3, gateway="/bin/envoy")
    assert [program.name for program in stack.stages[-1]] == ["envoy"]
    files = {path.name: text for path, text in stack.files.items()}
    config = yaml.safe_load(files["envoy.yaml"])
    addresses = {
        cluster["name"]: [
            each["endpoint"]["address"]["socket_address"]["port_value"]
            for each in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
        ]
        for cluster in config["static_resources"]["clusters"]
    }
    assert addresses["engines"] == [int(engine.url.rpartition(":")[2]) for engine in stack.engines]
    assert addresses["routers"] == [int(router.ext_proc.rpartition(":")[2]) for router in stack.routers]
    told = yaml.safe_load(files["endpoints.yaml"])["endpoints"]
    assert [each["replica"] for each in told] == [engine.replica for engine in stack.engines]
    for router in stack.routers:
        assert option(stack.program(router.name), "--gateway-bind-address") == router.ext_proc


def test_without_a_gateway_routers_are_no_endpoint_pickers() -> None:
    stack = plan()
    assert not stack.files
    assert stack.gateway_url == ""
    assert all("--gateway" not in part for name in stack.routers for part in stack.program(name.name).command)
