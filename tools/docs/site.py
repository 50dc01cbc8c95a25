"""What mkdocs does with our pages beyond rendering them.

Pages link to each other and to files of the repository as the repository has them, so that both places work.
In the site a link to a file that is no page leads to a copy of it below `source/`. CONTRIBUTING.md becomes a
page.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent.parent
DOCS: Final = "docs"
ADOPTED: Final = {"CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
"""Files outside of `docs/` by the page that stands for them."""
COPIES: Final = "source"
LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page that is written elsewhere."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files.append(File.generated(config, ADOPTED["CONTRIBUTING.md"], content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into those of the site."""
    source = page.file.src_uri
    origin = "CONTRIBUTING.md" if source == ADOPTED["CONTRIBUTING.md"] else f"{DOCS}/{source}"

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if urlsplit(target).scheme:
            return match[0]
        uri = site_uri(origin, target)
        if uri.startswith(f"{COPIES}/"):
            uri = copied(uri, config, files)
        return posixpath.relpath(uri, posixpath.dirname(source) or ".") + anchor

    return LINK.sub(link, markdown)


def site_uri(origin: str, target: str) -> str:
    """Where the site has what a file of the repository links to; both paths are of the repository."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    if path in ADOPTED:
        return ADOPTED[path]
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    return f"{COPIES}/{path}"


def copied(uri: str, config: MkDocsConfig, files: Files) -> str:
    """Where the site has the copy of a file, or a list of a folder's files; missing ones mkdocs tells."""
    path = ROOT / uri.removeprefix(f"{COPIES}/")
    if path.is_file():
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        return uri
    if not path.is_dir():
        return uri
    names = sorted(child.name for child in path.iterdir() if child.is_file())
    for name in names:
        copied(f"{uri}/{name}", config, files)
    listing = f"{uri}/index.html"
    if files.get_file_from_path(listing) is None:
        items = "".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
        files.append(File.generated(config, listing, content=f"<!doctype html><ul>{items}</ul>"))
    return listing
