"""Custom resources from files: every problem at once, each with its place."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from inferencecache.cli.policies.files import STDIN, UnusableFilesError, read_files
from inferencecache.schemas.resources import CachePolicy, CacheTenant

HEAD = "apiVersion: inferencecache.io/v1alpha1\n"
POLICY = HEAD + "kind: CachePolicy\nmetadata: {namespace: team-a, name: lookup}\nspec: {eviction: LFU}\n"
TENANT = HEAD + "kind: CacheTenant\nmetadata: {namespace: team-a, name: x}\nspec: {tenantID: t}\n"

SAMPLES = """
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata:
  name: lookup
  namespace: serving
spec:
  eviction: LFU
  evictionTTL: 45m
  minimumPrefixTokens: 48
  routingFloorScore: "2.5"
  lookupTimeoutMs: 15
  strategy:
    requireChain: true
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata:
  name: serving
  namespace: serving
spec:
  tenantID: serving
  quota:
    maxIndexEntries: 250000
---
apiVersion: inferencecache.io/v1alpha1
kind: PromptTemplate
metadata:
  name: helpdesk
  namespace: serving
spec:
  body: "You answer for {{brand}}.\\nQuestion: {{question}}\\n"
  slots:
    - {name: brand, type: Stable, required: true}
    - {name: question, type: Mutable, required: true, description: text typed by the user}
---
apiVersion: inferencecache.io/v1alpha1
kind: PDTopology
metadata:
  name: chat-pd
  namespace: serving
spec:
  acceleratorTypes:
    - {name: big, vendor: nvidia, model: H200}
  prefillPools:
    - {name: pre-0, replicas: 2, acceleratorType: big, matchLabels: {phase: prefill}}
  decodePools:
    - {name: dec-0, replicas: 6, acceleratorType: big, matchLabels: {phase: decode}}
"""


def problems_of(*paths: Path) -> tuple[str, ...]:
    with pytest.raises(UnusableFilesError) as raised:
        read_files(paths)
    return raised.value.problems


def write(folder: Path, text: str, name: str = "file.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_the_samples_of_all_kinds_are_read(tmp_path: Path) -> None:
    resources = read_files([write(tmp_path, SAMPLES)])
    assert [str(resource.ref) for resource in resources] == [
        "CachePolicy serving/lookup",
        "CacheTenant serving/serving",
        "PromptTemplate serving/helpdesk",
        "PDTopology serving/chat-pd",
    ]


def test_objects_are_defaulted_as_by_the_api_server(tmp_path: Path) -> None:
    (resource,) = read_files([write(tmp_path, POLICY)])
    assert isinstance(resource, CachePolicy)
    assert (resource.spec.eviction, resource.spec.minimum_matched_tokens) == ("LFU", 64)


def test_a_folder_a_list_and_json_give_their_objects(tmp_path: Path) -> None:
    write(tmp_path, "---\n" + POLICY + "---\n", "a.yaml")
    write(
        tmp_path,
        '{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "inferencecache.io/v1alpha1", '
        '"kind": "CacheTenant", "metadata": {"namespace": "n", "name": "x", '
        '"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"tenantID": "t"}}]}',
        "b.json",
    )
    write(tmp_path, "not read", "notes.txt")
    policy, tenant = read_files([tmp_path])
    assert isinstance(policy, CachePolicy)
    assert isinstance(tenant, CacheTenant)


def test_timestamps_of_an_exported_object_stay_text(tmp_path: Path) -> None:
    exported = POLICY.replace("name: lookup", "name: lookup, creationTimestamp: 2026-01-01T00:00:00Z")
    (resource,) = read_files([write(tmp_path, exported)])
    assert resource.metadata.creation_timestamp == "2026-01-01T00:00:00Z"


def test_a_key_may_stand_beside_the_same_one_of_a_merged_mapping(tmp_path: Path) -> None:
    merged = POLICY.replace("{eviction: LFU}", "{<<: {eviction: LFU}, eviction: LRU}")
    (policy,) = read_files([write(tmp_path, merged)])
    assert isinstance(policy, CachePolicy)
    assert policy.spec.eviction == "LRU"


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(TENANT))
    assert [str(resource.ref) for resource in read_files([STDIN])] == ["CacheTenant team-a/x"]


def test_all_problems_of_all_files_are_told_with_their_places(tmp_path: Path) -> None:
    first = write(
        tmp_path, POLICY.replace("LFU", "lru") + "---\n" + TENANT.replace("t}", "''}"), "first.yaml"
    )
    second = write(
        tmp_path,
        POLICY.replace(
            "eviction: LFU", "evictionTTL: 0s, routingFloorScore: 'x', strategy: {loadWeight: '.'}"
        ),
        "second.yaml",
    )
    problems = problems_of(first, second, tmp_path / "gone.yaml")
    starts = [
        f"{first}, document 1: CachePolicy team-a/lookup: spec.eviction: 'lru' is not",
        f"{first}, document 2: CacheTenant team-a/x: spec.tenantID: expected",
        f"{second}, document 1: CachePolicy team-a/lookup: spec.evictionTTL: 0s is not more than 0",
        f"{second}, document 1: CachePolicy team-a/lookup: spec.routingFloorScore: 'x' is not",
        f"{second}, document 1: CachePolicy team-a/lookup: spec.strategy.loadWeight: '.' is not",
        f"{tmp_path / 'gone.yaml'}: No such file",
    ]
    assert len(problems) == len(starts)
    for problem, start in zip(problems, starts, strict=True):
        assert problem.startswith(start)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "line 1, column 5: no YAML"),
        (POLICY + "spec: {eviction: LRU}\n", "line 5, column 1: no YAML: the key 'spec' stands twice"),
        (POLICY.replace("LFU", "LFU, eviction: LRU"), "no YAML: the key 'eviction' stands twice"),
        ("just text", "a resource is a mapping"),
        (POLICY.replace("namespace: team-a, ", ""), "metadata.namespace: is required"),
        (POLICY.replace("team-a", "a/b"), "metadata.namespace: write at most"),
        (POLICY.replace("lookup", "x" * 254), "metadata.name: write at most"),
        (
            POLICY.replace("name: lookup", "name: yes"),
            "metadata.name: must be text, not true or false; put it",
        ),
        (POLICY.replace("LFU", "LFU, evictionTtl: 5m"), "spec.evictionTtl: no such field; did you mean"),
        (POLICY + "---\n" + POLICY, "metadata.name: the files have this object twice"),
        ("!!python/object:os.system {}", "no YAML"),
        (POLICY.replace("kind: CachePolicy", "kind: CacheOther"), "kind: 'CacheOther' is not known here"),
        (
            POLICY.replace("kind: CachePolicy", "kind: CacheBackend"),
            "controller, this command does not handle it; it takes CachePolicy, CacheTenant, ",
        ),
    ],
)
def test_a_problem_says_what_to_change(tmp_path: Path, text: str, problem: str) -> None:
    (told,) = problems_of(write(tmp_path, text))
    assert problem in told
