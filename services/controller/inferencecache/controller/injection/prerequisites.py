"""What an engine's command line must and must not say before an LMCache server is put beside it.

Several ranks of a pipeline or of data parallelism would each need a server of their own; SGLang's
pages must fill chunks exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from inferencecache.controller.admission.reviews import Document
from inferencecache.controller.injection.arguments import occurrences, only_value, whole_number
from inferencecache.controller.injection.pods import engine_of, parts
from inferencecache.controller.injection.refusals import NotWiredError
from inferencecache.controller.injection.servers import node_local_server, pod_local_server
from inferencecache.core.kube.backends import LMCACHE, NODE_LOCAL, Backend, section, text

_SINGLE: Final = (("--pipeline-parallel-size", "-pp"), ("--data-parallel-size", "-dp"))
_RANK_FLAGS: Final = (
    "--data-parallel-rank",
    "--data-parallel-start-rank",
    "--data-parallel-size-local",
    "--data-parallel-address",
    "--data-parallel-rpc-port",
)
_HYBRID: Final = "--disable-hybrid-kv-cache-manager"
_BOOLEANS: Final = ("true", "false", "0", "1")


def check_system(pod: Document) -> None:
    """What is injected is for Linux. Raises `NotWiredError`."""
    if text(section(pod, "spec", "os"), "name") == "windows":
        raise NotWiredError("the pod's spec.os.name is windows; engines are wired on Linux alone")


def check_prerequisites(pod: Document, backend: Backend) -> None:
    """Of a backend with a topology; raises `NotWiredError` for the first that fails [ADM-154]."""
    if backend.type != LMCACHE:
        raise NotWiredError(f"spec.lmCache.topology belongs to type {LMCACHE}, not {backend.type}")
    if backend.topology == NODE_LOCAL:
        node_local_server(backend)
    else:
        pod_local_server(backend)
    arguments = parts(engine_of(pod, backend.runtime_id), "args")
    if backend.runtime_id == "vllm":
        _check_vllm(arguments)
    else:
        _check_sglang(arguments, backend.chunk_tokens)


def _check_vllm(arguments: Sequence[str]) -> None:
    tensor = only_value(arguments, "--tensor-parallel-size", "-tp")
    if tensor is not None and (whole_number(tensor) or 0) < 1:
        raise NotWiredError(f"--tensor-parallel-size {tensor} is no positive number")
    for flag, alias in _SINGLE:
        size = only_value(arguments, flag, alias)
        if size is not None and whole_number(size) != 1:
            raise NotWiredError(f"{flag} {size} is not supported with LMCache; leave it out")
    if ranks := occurrences(arguments, *_RANK_FLAGS):
        raise NotWiredError(f"{ranks[0].flag} is not supported with LMCache; leave it out")
    _check_switch(arguments, _HYBRID)
    only_value(arguments, "--kv-transfer-config", next_flag="--")


def _check_switch(arguments: Sequence[str], flag: str) -> None:
    found = occurrences(arguments, flag)
    if len(found) > 1 or any(one.joined or (one.value or "").lower() in _BOOLEANS for one in found):
        raise NotWiredError(f"{flag} takes no value and may be there once")


def _check_sglang(arguments: Sequence[str], chunk_tokens: int) -> None:
    """SGLang's own page size does not suit, so it must be said, in `args` [ADM-160]."""
    size = only_value(arguments, "--page-size")
    if size is None:
        raise NotWiredError("the engine's args need --page-size, a divisor of spec.lmCache.chunkSizeTokens")
    pages = whole_number(size) or 0
    if pages < 1 or chunk_tokens % pages:
        raise NotWiredError(
            f"--page-size {size} is no divisor of {chunk_tokens}; change it or spec.lmCache.chunkSizeTokens"
        )
