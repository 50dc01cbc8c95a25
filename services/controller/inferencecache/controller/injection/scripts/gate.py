"""Waits until this node's LMCache server runs as the backend wants it, then lets the engine start."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

PAUSE_S = 2
TIMEOUT_S = 2


def expected_config() -> dict[tuple[str, ...], object]:
    """What the server must report, by the path in its configuration."""
    env = os.environ
    return {
        ("mp", "instance_id"): env["EXPECTED_INSTANCE_ID"],
        ("mp", "shm_name"): env["EXPECTED_SHM_NAME"],
        ("mp", "port"): int(env["EXPECTED_MP_PORT"]),
        ("mp", "chunk_size"): int(env["EXPECTED_CHUNK_SIZE"]),
        ("mp", "max_gpu_workers"): int(env["EXPECTED_MAX_GPU_WORKERS"]),
        ("mp", "max_cpu_workers"): int(env["EXPECTED_MAX_CPU_WORKERS"]),
        ("storage_manager", "l1_manager_config", "memory_config", "shm_name"): env["EXPECTED_SHM_NAME"],
        ("http", "http_port"): int(env["EXPECTED_HTTP_PORT"]),
    }


def read(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:  # noqa: S310 - the scheme is main's
        return json.load(response)


def value_at(document: Any, *path: str) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def problem_of(base: str) -> str:
    """Why the engine has to wait, empty when it need not."""
    try:
        config = read(f"{base}/config")
        health = read(f"{base}/healthcheck")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"no answer from {base}: {error!r}"
    for path, wanted in expected_config().items():
        found = value_at(config, *path)
        if found != wanted:
            return f"{'.'.join(path)} is {found!r}, not {wanted!r}"
    status = value_at(health, "status")
    return "" if status == "healthy" else f"status is {status!r}, not 'healthy'"


def write_client_config(path: Path, node_ip: str) -> None:
    """The engine's file, complete from its first moment on."""
    chunk_size, port = os.environ["EXPECTED_CHUNK_SIZE"], os.environ["EXPECTED_MP_PORT"]
    text = f'chunk_size: {chunk_size}\nmp_host: "{node_ip}"\nmp_port: {port}\n'
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def main() -> None:
    node_ip = os.environ["INFERENCECACHE_NODE_IP"]
    host = f"[{node_ip}]" if ":" in node_ip else node_ip
    base = f"http://{host}:{os.environ['EXPECTED_HTTP_PORT']}"
    while problem := problem_of(base):
        print("waiting for the node's LMCache server:", problem, flush=True)
        time.sleep(PAUSE_S)
    path = os.environ.get("CLIENT_CONFIG_PATH", "")
    if path:
        write_client_config(Path(path), node_ip)


if __name__ == "__main__":
    main()
