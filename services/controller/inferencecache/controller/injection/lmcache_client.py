"""The engine's side of LMCache: arguments and variables that connect it to a server [ADM-166..173]."""

from __future__ import annotations

import json
from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.arguments import set_flag, set_pair
from inferencecache.controller.injection.environment import (
    from_field,
    literal,
    reset_variable,
    set_variable,
)
from inferencecache.controller.injection.mp_server import NODE_IP
from inferencecache.controller.injection.pods import parts
from inferencecache.controller.injection.servers import node_local_server, pod_local_server
from inferencecache.core.kube.backends import NODE_LOCAL, POD_LOCAL, Backend

_ROLES: Final = {"ReadOnly": "kv_consumer", "WriteOnly": "kv_producer"}
CONFIG_FOLDERS: Final = {
    POD_LOCAL: "/var/run/inference-cache/lmcache",
    NODE_LOCAL: "/var/run/inference-cache/lmcache-node",
}


def config_path(topology: str) -> str:
    """The client file that SGLang reads."""
    return f"{CONFIG_FOLDERS[topology]}/client.yaml"


def connect_vllm(engine: Document, backend: Backend) -> None:
    """VLLM takes the connector as JSON. With a fixed hash seed the hashes of tuples, and with them the keys
    of blocks, are the same in every engine.
    """
    args = set_pair(parts(engine, "args"), "--kv-transfer-config", _transfer_config(backend))
    engine["args"] = set_flag(args, "--disable-hybrid-kv-cache-manager")
    env = reset_variable(_with_node_ip(engine, backend), literal("PYTHONHASHSEED", "0"))
    engine["env"] = reset_variable(env, _fail_open(backend))


def connect_sglang(engine: Document, backend: Backend, *, with_metrics: bool) -> None:
    """The connector is read from a file; metrics are served only on demand [ADM-172]."""
    args = set_flag(parts(engine, "args"), "--enable-lmcache")
    args = set_pair(args, "--lmcache-config-file", config_path(backend.topology))
    engine["args"] = set_flag(args, "--enable-metrics") if with_metrics else args
    env = set_variable(_with_node_ip(engine, backend), literal("LMCACHE_USE_EXPERIMENTAL", "True"))
    engine["env"] = set_variable(env, _fail_open(backend))


def _with_node_ip(engine: Document, backend: Backend) -> list[Document]:
    env = parts(engine, "env")
    if backend.topology != NODE_LOCAL:
        return env
    return set_variable(env, from_field(NODE_IP, "status.hostIP"))


def _fail_open(backend: Backend) -> Document:
    return literal("INFERENCECACHE_FAIL_OPEN", "true" if backend.fail_open else "false")


def _transfer_config(backend: Backend) -> str:
    """Compact, its keys in this order [ADM-170]."""
    if backend.topology == NODE_LOCAL:
        host, port = f"$({NODE_IP})", node_local_server(backend).port
    else:
        host, port = "127.0.0.1", pod_local_server(backend).port
    config = {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
        "kv_role": _ROLES.get(backend.role, "kv_both"),
        "kv_connector_extra_config": {
            "lmcache.mp.host": f"tcp://{host}",
            "lmcache.mp.port": str(port),
        },
    }
    return json.dumps(config, separators=(",", ":"))
