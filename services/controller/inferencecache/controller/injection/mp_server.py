"""What LMCache's multiprocess servers have in common, wherever they run.

The server sees every GPU, to copy blocks out of the engine's memory, but is allocated none [ADM-184].
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.bindings import Binding
from inferencecache.controller.injection.environment import from_secret, literal
from inferencecache.schemas.resources.quantities import GIBI, parse_quantity

SERVER_NAME: Final = "lmcache-mp-server"
SERVER_MARKER: Final = "INFERENCECACHE_MP_SERVER"
"""Variable that tells a server of ours from one that happens to have its name [ADM-180, ADM-189]."""
DATA_PORT_NAME: Final = "lmcache-mp"
HTTP_PORT_NAME: Final = "lmcache-http"
NODE_IP: Final = "INFERENCECACHE_NODE_IP"

SECURITY_CONTEXT: Final[Document] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""User and group are the image's [ADM-183]."""


def size_of(quantity: Any) -> int:
    """Bytes, a part of one counting whole. Raises ValueError."""
    amount = parse_quantity(quantity)
    return -(-amount.numerator // amount.denominator)


def memory_budget(l1_capacity: Any) -> int:
    """Bytes of shared memory that a server with this capacity needs."""
    return size_of(l1_capacity) + GIBI


def quantity_text(size: int) -> str:
    """Bytes as the API writes them: `5Gi`, `2560Mi`."""
    for power, suffix in enumerate(("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")):
        unit = 1024 ** (6 - power)
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def gibibytes_text(l1_capacity: Any) -> str:
    """The capacity in GiB: a whole number, else the shortest decimal without exponent [ADM-176]."""
    amount = Fraction(size_of(l1_capacity), GIBI)
    if amount.denominator == 1:
        return str(amount.numerator)
    return format(Decimal(repr(float(amount))), "f")


def server_environment(binding: Binding | None, *own: Document) -> list[Document]:
    """Variables of a server: the only container that gets credentials [ADM-180, ADM-269]."""
    env = [literal("NVIDIA_VISIBLE_DEVICES", "all"), literal(SERVER_MARKER, "true"), *own]
    if binding is not None and binding.username is not None:
        env.append(_secret("LMCACHE_RESP_USERNAME", binding.username))
    if binding is not None and binding.password is not None:
        env.append(_secret("LMCACHE_RESP_PASSWORD", binding.password))
    return env


def _secret(name: str, selector: Document) -> Document:
    return from_secret(name, selector["name"], selector["key"])


def server_ports(port: int, http_port: int) -> list[Document]:
    """Named, because scrapers and probes look for the names [ADM-181]."""
    named = ((DATA_PORT_NAME, port), (HTTP_PORT_NAME, http_port))
    return [{"name": name, "containerPort": number, "protocol": "TCP"} for name, number in named]


def server_probes() -> Document:
    """Up to two minutes for the start, while host memory is pinned [ADM-182]."""
    check = {"path": "/healthcheck", "port": HTTP_PORT_NAME, "scheme": "HTTP"}

    def probe(period: int, failures: int) -> Document:
        return {
            "httpGet": dict(check),
            "timeoutSeconds": 2,
            "periodSeconds": period,
            "failureThreshold": failures,
        }

    return {"startupProbe": probe(3, 40), "readinessProbe": probe(5, 3), "livenessProbe": probe(10, 3)}
