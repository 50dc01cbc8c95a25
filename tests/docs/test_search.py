"""A reader opens the built site in a browser and finds what they look for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferencecache.core.index.reason import Reason
from tests.docs.browser import Tab, opened
from tests.support.waiting import eventually
from tools.docs.__main__ import build, server

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(180)]
RESULTS = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
LIMIT_S = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("site")
    build(folder)
    with server(folder, 0) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}"
        listener.shutdown()
        thread.join()


async def search(tab: Tab, words: str) -> list[str]:
    """What the search box of the open page offers, once it offers something."""
    await eventually(
        lambda: tab.evaluate("document.querySelector('[data-md-component=search-query]') !== null")
    )
    await tab.evaluate(
        f"""(() => {{
            document.querySelector('[data-md-toggle=search]').click();
            const box = document.querySelector('[data-md-component=search-query]');
            box.focus();
            box.value = {json.dumps(words)};
            box.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}}));
            box.dispatchEvent(new Event('input', {{bubbles: true}}));
        }})()"""
    )
    await eventually(lambda: tab.evaluate(f"{RESULTS}.length > 0"), within_s=LIMIT_S)
    found: list[str] = await tab.evaluate(RESULTS)
    return found


async def test_a_reason_code_is_found_by_the_search_and_explained_where_it_leads(site: str) -> None:
    async with opened(f"{site}/index.html") as tab:
        results = await search(tab, Reason.UNKNOWN_HASH_SCHEME)
        (page,) = {link.partition("?")[0] for link in results if "reason-codes" in link}
        assert page == f"{site}/reference/reason-codes.html"
    async with opened(page) as tab:
        await eventually(
            lambda: tab.evaluate(
                f"document.body?.innerText.includes({json.dumps(Reason.UNKNOWN_HASH_SCHEME)})"
            )
        )
        assert "Name the scheme that sidecars report" in await tab.evaluate("document.body.innerText")


async def test_what_is_nowhere_is_not_found(site: str) -> None:
    async with opened(f"{site}/index.html?q=qqqqzzzz") as tab:
        meta = "document.querySelector('.md-search-result__meta')?.textContent ?? ''"
        await eventually(
            lambda: tab.evaluate(f"({meta}).includes('No matching documents')"), within_s=LIMIT_S
        )
        assert await tab.evaluate(f"{RESULTS}.length") == 0
