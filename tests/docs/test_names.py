"""Every flag, variable, code, metric and field that a page names exists in the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from grpc import StatusCode

from inferencecache.cli.doctor.findings import CODES
from inferencecache.core.index.reason import Reason
from inferencecache.router.tokenizing import Refusal
from inferencecache.schemas.resources import KINDS
from inferencecache.schemas.resources.definitions import definition_of
from inferencecache.v1alpha1 import inferencecache_pb2 as pb
from tests.docs.reading import DOCS, ROOT, code, name_of, pages
from tools.docs.commands import command, leaves
from tools.docs.settings import parsers
from tools.metrics_reference import MEASURES

FOREIGN_FLAGS = {
    *("--kv-events-config", "--block-size", "--enable-prefix-caching", "--no-enable-prefix-caching"),
    *("--enable-lora", "--page-size", "--max-age", "--namespace", "--require", "--help"),
}
"""Flags of engines, of NATS's and Kubernetes' commands, and of any program, that pages speak about."""
FOREIGN_FIELDS = {
    *("failureMode", "parentRefs", "podMonitorSelector", "ruleSelector", "serviceMonitorSelector"),
}
"""Fields of Kubernetes objects of others."""
GUIDES = [page for page in pages() if name_of(page) not in ("docs/spec-coverage.md", "docs/rpc-cases.md")]
WRITTEN = [page for page in GUIDES if "reference" not in page.parts]


def each(find: Callable[[str], Iterator[str]], among: list[Path]) -> Iterator[tuple[str, str]]:
    """What `find` finds, with the page that it is on."""
    for page in among:
        for name in find(page.read_text()):
            yield name_of(page), name


@cache
def flags() -> set[str]:
    """Of our programs, of the command line, and of the scripts of the repository."""
    ours = {setting.flag for parser in parsers().values() for setting in parser.settings}
    for path in leaves():
        for one in command(*path).params:
            ours.update((*one.opts, *one.secondary_opts))
    for folder in ("tools", "benchmarks", "simengine", "services", "tests/support"):
        for source in (ROOT / folder).rglob("*.py"):
            ours.update(re.findall(r'"(--[a-z][a-z0-9-]+)"', source.read_text()))
    return ours


@cache
def fields() -> set[str]:
    """Names of fields of our kinds and of Kubernetes' own below them, and of messages, in JSON too."""

    def below(schema: dict[str, object]) -> Iterator[str]:
        for key, value in schema.items():
            if key == "properties" and isinstance(value, dict):
                yield from value
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, dict):
                    yield from below(part)

    found = {name for kind in KINDS.values() for name in below(definition_of(kind))}
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        found.update(name for field in message.fields for name in (field.name, field.json_name))
    return found


def test_every_flag_exists() -> None:
    known = flags() | FOREIGN_FLAGS

    def named(text: str) -> Iterator[str]:
        for span in code(text):
            yield from re.findall(r"(?<![\w-])(--[a-z][a-z0-9-]+)", span)

    unknown = [(page, flag) for page, flag in each(named, GUIDES) if flag not in known]
    assert not unknown


def test_every_variable_exists() -> None:
    known = {setting.variable for parser in parsers().values() for setting in parser.settings}
    known |= {str(one.envvar) for path in leaves() for one in command(*path).params}
    known |= {"INFERENCECACHE_CACHE_DIR", "INFERENCECACHE_NATS_"}

    def named(text: str) -> Iterator[str]:
        yield from re.findall(r"INFERENCECACHE_[A-Z0-9_]*", text)

    assert not [(page, name) for page, name in each(named, GUIDES) if name not in known]


def test_every_metric_exists() -> None:
    known = {measure.series for measures in MEASURES.values() for measure in measures}

    def named(text: str) -> Iterator[str]:
        for name in re.findall(r"inferencecache_[a-z0-9_]+", text):
            yield re.sub(r"_(?:bucket|sum|count)$", "", name)

    ours = {name for name in each(named, GUIDES) if not re.match(r"inferencecache_(pb2|[a-z]+_$)", name[1])}
    assert not [(page, name) for page, name in ours if name not in known and name + "_count" not in known]


def test_every_doctor_code_exists() -> None:
    known = set(CODES)

    def named(text: str) -> Iterator[str]:
        yield from re.findall(r"\b(?:SV|SN|PL|PB|API|CB|EP|OP|CT|CP|JS|RT|EN)\d{3}\b", text)

    assert not [(page, name) for page, name in each(named, GUIDES) if name not in known]


def test_every_reason_and_other_constant_exists() -> None:
    grpc = {status.name for status in StatusCode}
    enums = {value for enum in (pb.CacheTier, pb.CacheEvent.Type) for value in enum.keys()}  # noqa: SIM118
    rendering = {"OK", "TEMPLATE_NOT_FOUND", "RENDER_ERROR"}
    tokenizing = {f"TOKENIZING_{refusal.name}" for refusal in Refusal}
    known = {*Reason, *grpc, *enums, *rendering, *tokenizing}
    source = "\n".join(
        path.read_text()
        for folder in ("core", "services", "cli", "tools", "benchmarks", "deploy", "simengine", "schemas")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".conf"}
    )
    makefile = (ROOT / "Makefile").read_text() + (ROOT / "docker-compose.yaml").read_text()

    def named(text: str) -> Iterator[str]:
        yield from (
            span for span in code(text) if re.fullmatch(r"(?!INFERENCECACHE)[A-Z]+(?:_[A-Z]+)+", span)
        )

    for page, name in each(named, GUIDES):
        if name not in known:
            assert re.search(rf"\b{name}\b", source + makefile), (page, name)


def test_every_field_exists() -> None:
    def named(text: str) -> Iterator[str]:
        for span in code(text):
            if re.fullmatch(
                r"(?:spec|status|strategy|quota|observation|integration|lmCache)\.[A-Za-z.\[\]]+", span
            ):
                yield from re.sub(r"\[\]", "", span).split(".")
            elif re.fullmatch(r"[a-z]+(?:[A-Z][a-z]+)+(?:TTL|ID)?", span):
                yield span

    known = fields() | FOREIGN_FIELDS
    missing = {(page, name) for page, name in each(named, WRITTEN) if name not in known}
    assert not missing


def test_every_file_that_a_page_speaks_about_exists() -> None:
    def named(text: str) -> Iterator[str]:
        for span in code(text):
            if re.fullmatch(r"(?:deploy|docs|tests|tools|proto)/[\w./-]+", span):
                yield span

    assert not [(page, path) for page, path in each(named, WRITTEN) if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=name_of)
def test_pictures_exist_and_have_a_text(page: Path) -> None:
    for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text()):
        assert text
        assert (page.parent / target).is_file()
