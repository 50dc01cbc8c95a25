"""`RenderTemplate` with templates, variables and tokenizers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import structlog.testing

from inferencecache.core.fingerprint import prefix_digests
from inferencecache.core.templates import Template, resolve_template
from inferencecache.router.models_dir import load_models
from inferencecache.router.rendering import Rendering
from inferencecache.router.tokenizing import Tokenizing
from inferencecache.v1alpha1.inferencecache_pb2 import RenderTemplateRequest, RenderTemplateResponse
from tests.support.models import make_model
from tests.support.resources import template
from tests.support.router import Router

BODY = "You answer for {{brand}}, a company that makes everything.\nQuestion: {{question}}\n"
SLOTS = (
    {"name": "brand", "type": "Stable", "required": True},
    {"name": "question", "type": "Mutable", "required": True},
)
TEMPLATE = Template(resolve_template(template(BODY, *SLOTS)))
VALUES = {"brand": "ACME", "question": "why?"}
PREFIX = "You answer for ACME, a company that makes everything.\nQuestion: "


def rendering(tokenizing: Tokenizing | None = None, block_size: int = 4) -> Rendering:
    templates = {"serving/helpdesk": TEMPLATE}
    return Rendering(templates.get, tokenizing or Tokenizing({}), block_size)


def request(values: dict[str, str] | None = None, **fields: str) -> RenderTemplateRequest:
    keys = {"template_ref": "serving/helpdesk", "tenant_id": "serving"} | fields
    return RenderTemplateRequest(variables=VALUES if values is None else values, **keys)


@pytest.mark.rule("RPC-T1", "WIRE-120", "WIRE-140")
async def test_a_template_is_rendered_with_its_revision_and_its_tenant() -> None:
    assert await rendering().answer(request()) == RenderTemplateResponse(
        rendered_prompt=f"{PREFIX}why?\n".encode(),
        tenant_namespace=b"serving",
        reason_code="OK",
        template_revision=TEMPLATE.revision,
    )


@pytest.mark.rule("RPC-T2", "WIRE-120")
async def test_the_key_is_the_last_block_of_the_stable_prefix(tmp_path: Path) -> None:
    reference = make_model(tmp_path / "m", template=None)
    made = rendering(Tokenizing(load_models(tmp_path)))
    answer = await made.answer(request(model_id="m"))
    ids = reference.encode(PREFIX).ids
    assert len(ids) >= 8
    assert answer.stable_prefix_hash == prefix_digests(ids, 4)[-1]
    other = await made.answer(request({"brand": "ACME", "question": "how?"}, model_id="m"))
    assert other.stable_prefix_hash == answer.stable_prefix_hash
    assert (await made.answer(request({"brand": "Other", "question": "how?"}, model_id="m"))) != other


@pytest.mark.rule("RPC-T3", "WIRE-120")
async def test_without_model_tokenizer_or_a_full_block_the_key_is_empty(tmp_path: Path) -> None:
    make_model(tmp_path / "m", template=None)
    tokenizing = Tokenizing(load_models(tmp_path))
    for made, model in (
        (rendering(tokenizing), ""),
        (rendering(tokenizing), "other"),
        (rendering(), "m"),
        (rendering(tokenizing, block_size=1024), "m"),
    ):
        answer = await made.answer(request(model_id=model))
        assert (answer.reason_code, answer.stable_prefix_hash) == ("OK", b"")


@pytest.mark.rule("RPC-T4", "WIRE-141")
@pytest.mark.parametrize("ref", ["", "serving", "other/helpdesk", "serving/helpdesk/", "Serving/helpdesk"])
async def test_an_unknown_template_is_not_found(ref: str) -> None:
    answer = await rendering().answer(request(template_ref=ref))
    assert answer == RenderTemplateResponse(reason_code="TEMPLATE_NOT_FOUND")


@pytest.mark.rule("RPC-T5", "WIRE-141")
@pytest.mark.parametrize("values", [{}, {"brand": "ACME"}, VALUES | {"more": "x"}])
async def test_variables_that_do_not_fit_are_a_render_error(values: dict[str, str]) -> None:
    assert await rendering().answer(request(values)) == RenderTemplateResponse(reason_code="RENDER_ERROR")


@pytest.mark.rule("RPC-T6", "WIRE-046")
async def test_the_reserved_tenant_gets_the_ordinary_answer() -> None:
    answer = await rendering().answer(request(tenant_id="inferencecache.io/probe"))
    assert (answer.reason_code, answer.tenant_namespace) == ("OK", b"inferencecache.io/probe")


@pytest.mark.rule("WIRE-023")
async def test_a_failure_is_logged_once_without_what_the_caller_sent() -> None:
    made = rendering()
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await made.answer(request(VALUES | {"secret name": "secret value"}))
    (entry,) = logs
    assert (entry["event"], entry["template"]) == ("render_failed", "serving/helpdesk")
    assert "secret" not in str(entry)


@pytest.mark.rule("RPC-T1", "RPC-T7", "WIRE-120")
async def test_the_served_router_renders_what_is_in_force_now(router: Router) -> None:
    async def ask() -> RenderTemplateResponse:
        return await router.stub.RenderTemplate(request())

    intent = router.log.intent
    assert (await ask()).reason_code == "TEMPLATE_NOT_FOUND"
    for body in (BODY, "{{brand}}: {{question}}"):
        resolved = resolve_template(template(body, *SLOTS))
        assert intent.set_template("serving/helpdesk", msgspec.json.encode(resolved))
        answer = await ask()
        assert answer.rendered_prompt.decode() == Template(resolved).render(VALUES).text
        assert (answer.reason_code, answer.template_revision) == ("OK", resolved.revision)
    intent.set_template("serving/helpdesk", None)
    assert (await ask()).reason_code == "TEMPLATE_NOT_FOUND"
