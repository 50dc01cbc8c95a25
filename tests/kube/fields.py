"""One field of a kind, and what the server must make of each value that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest

from inferencecache.schemas.resources import KINDS, InvalidResourceError, read_resource, violations
from tests.kube.objects import ABSENT, SPECS, STATUSES, an_object, value_at, with_value
from tests.support.kube import Answer, Document, KubeClient

REASONS: Final = {
    "unsupported": "FieldValueNotSupported",
    "invalid": "FieldValueInvalid",
    "mistyped": "FieldValueTypeInvalid",
    "missing": "FieldValueRequired",
    "doubled": "FieldValueDuplicate",
    "too_long": "FieldValueTooLong",
    "too_many": "FieldValueTooMany",
}


class Field(NamedTuple):
    """`accepted` values are stored as they are. `refused` values are so for one of `REASONS` each; the server
    blames the field itself unless they come with another path below it. When the field is left out it
    is `absent`, a default, `ABSENT`, or refused if that is None.
    """

    path: str
    accepted: Sequence[object]
    refused: Sequence[tuple[str, object]]
    absent: object


def field(
    rules: pytest.MarkDecorator,
    path: str,
    accepted: Sequence[object] = (),
    *,
    absent: object = ABSENT,
    **refused: Sequence[object],
) -> Any:
    """A row of a table of fields: `field(rule("CRD-33"), "spec.x", [1], invalid=[0])`."""
    reasons = [(REASONS[reason], value) for reason, values in refused.items() for value in values]
    return pytest.param(Field(path, accepted, reasons, absent), marks=rules, id=path)


REQUIRED: Final = None
"""For `absent`: the field cannot be left out."""


async def check_field(kube: KubeClient, namespace: str, kind: str, field: Field) -> None:
    """Give an object with every field each of the values; nothing is left behind."""
    made = an_object(kind, namespace, SPECS[kind])
    if field.path.startswith("status"):
        made = (await kube.create(made)).body | {"status": STATUSES[kind]}
    for value in field.accepted:
        answer = await _written(kube, made, field.path, value)
        assert answer.status < 300, (value, answer.message)
        assert value_at(answer.body, field.path) == value
    for reason, value in field.refused:
        answer = await _written(kube, made, field.path, value)
        assert answer.status == 422, (value, answer.body)
        reasons = {cause[0] for cause in answer.causes if cause[1].startswith(field.path)}
        assert reason in reasons, (value, answer.causes)
        assert field.path.startswith("status") or _is_refused_without_server(
            with_value(made, field.path, value)
        )
    answer = await _written(kube, made, field.path, ABSENT)
    if field.absent is REQUIRED:
        assert answer.status == 422, answer.body
        assert ("FieldValueRequired", field.path) in {cause[:2] for cause in answer.causes}
    else:
        assert answer.status < 300, answer.message
        assert value_at(answer.body, field.path) == field.absent


async def _written(kube: KubeClient, made: Document, path: str, value: object) -> Answer:
    """What the server says to the object with this value there."""
    wanted = with_value(made, path, value)
    if path.startswith("status"):
        return await kube.replace(wanted, part="status", dry_run=True)
    return await kube.create(wanted, dry_run=True)


def _is_refused_without_server(document: Document) -> bool:
    """Whether whoever reads the document where there is no server refuses it too; kinds that only a
    server knows are not asked about.
    """
    if KINDS[document["kind"]].only_in_cluster:
        return True
    try:
        return bool(violations(read_resource(document)))
    except InvalidResourceError:
        return True
