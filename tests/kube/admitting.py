"""What an API server says that asks the webhooks, in the form in which the contract tells it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.kube import Answer, Document, KubeClient

_REASONS: Final[Mapping[str, str]] = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Forbidden": "FieldValueForbidden",
    "Unsupported value": "FieldValueNotSupported",
}


async def tried(client: KubeClient, document: Document) -> Answer:
    """The answer to a creation that is only tried."""
    return await client.create(document, dry_run=True)


def accepted(answer: Answer) -> Document:
    """The object as the server has it now."""
    assert answer.status in (200, 201), answer.body
    assert answer.warnings == (), "no webhook warns"
    return answer.body


def refused(answer: Answer, webhook: str, *expected: tuple[str, str]) -> list[str]:
    """Assert that the webhook refused for exactly these causes, each a field with the kind and value that
    its message begins with. Gives the details that follow.
    """
    assert answer.status == 422, answer.body
    assert answer.body["reason"] == "Invalid"
    details = answer.body["details"]
    assert details["group"] == "inferencecache.io"
    head = (
        f'admission webhook "{webhook}.inferencecache.io" denied the request: '
        f'{details["kind"]}.inferencecache.io "{details["name"]}" is invalid: '
    )
    causes = [f"{cause['field']}: {cause['message']}" for cause in details["causes"]]
    assert answer.message == head + (causes[0] if len(causes) == 1 else f"[{', '.join(causes)}]")
    assert [cause["field"] for cause in details["causes"]] == [field for field, _ in expected], causes
    rest = []
    for cause, (_, beginning) in zip(details["causes"], expected, strict=True):
        assert cause["reason"] == _REASONS[beginning.partition(":")[0]]
        assert cause["message"].startswith(f"{beginning}: "), cause
        rest.append(cause["message"].removeprefix(f"{beginning}: "))
    return rest


def refused_by_schema(answer: Answer, *fields: str) -> None:
    """Assert that the schema refused at exactly these fields, before any webhook was asked to judge."""
    assert answer.status == 422, answer.body
    assert "admission webhook" not in answer.message
    # Under <nil> the server notes that rules in CEL were left out for what else is wrong.
    found = {cause["field"] for cause in answer.body["details"]["causes"]} - {"<nil>"}
    assert found == set(fields), answer.body


def denied(answer: Answer, code: int, reason: str, *, webhook: str, message: str) -> None:
    """Assert a refusal without causes."""
    assert (answer.status, answer.body["reason"]) == (code, reason), answer.body
    assert "causes" not in answer.body.get("details", {})
    head = f'admission webhook "{webhook}.inferencecache.io" denied the request: '
    assert answer.message.startswith(head), answer.message
    assert message in answer.message
