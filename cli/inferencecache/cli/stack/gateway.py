"""The gateway in front of the local system: Envoy's configuration and what routers need to serve it.

The same text with well-known ports is `deploy/examples/envoy.yaml`, so that what the demo runs is what
people copy. Nothing is written or started here.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Final

LISTENER_PORT: Final = 8088
ADMIN_PORT: Final = 9901
EXT_PROC_PORT: Final = 9002
ENGINE_PORT: Final = 8001

_CONFIG: Final = Template(Path(__file__).with_name("envoy.template.yaml").read_text())


def envoy_config(host: str, listener: int, admin: int, engines: Sequence[str], routers: Sequence[str]) -> str:
    """Envoy's configuration; engines and routers (their ext_proc ports) as HOST:PORT."""
    return _CONFIG.substitute(
        host=host,
        listener=listener,
        admin=admin,
        engines="\n".join(map(_lb_endpoint, engines)),
        routers="\n".join(map(_lb_endpoint, routers)),
    )


def endpoints_file(engines: Sequence[tuple[str, str]]) -> str:
    """The routers' --gateway-endpoints-file: address and replica of each engine."""
    entries = "".join(f"- address: {address}\n  replica: {replica}\n" for address, replica in engines)
    return f"# Which engine is where, for a router's --gateway-endpoints-file.\nendpoints:\n{entries}"


def examples(host: str, engines: int, routers: int) -> dict[str, str]:
    """Both files by name, as they are where all well-known ports are free."""
    addresses = [f"{host}:{ENGINE_PORT + number}" for number in range(engines)]
    ext_procs = [f"{host}:{EXT_PROC_PORT + number}" for number in range(routers)]
    replicas = [f"engine-{number + 1}" for number in range(engines)]
    return {
        "envoy.yaml": envoy_config(host, LISTENER_PORT, ADMIN_PORT, addresses, ext_procs),
        "endpoints.yaml": endpoints_file(list(zip(addresses, replicas, strict=True))),
    }


def byte_tokenizer() -> str:
    """A tokenizer.json that does as simulated engines do: each byte of a text is a token."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    model = {"type": "BPE", "byte_fallback": True, "vocab": vocabulary, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model})


def envoy_program() -> str | None:
    """Where Envoy is: beside this Python, or on the path."""
    beside = Path(sysconfig.get_path("scripts")) / "envoy"
    return str(beside) if beside.exists() else shutil.which("envoy")


def _lb_endpoint(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"        - endpoint: {{address: {{socket_address: {{address: {host}, port_value: {port}}}}}}}"
