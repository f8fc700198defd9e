"""Hooks of the site's builder: they add generated pages, and links of statements and tests."""

from __future__ import annotations

import re
from pathlib import Path

import site_pages as pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

CHECKOUT = Path(__file__).resolve().parents[1]
DOCS = CHECKOUT / "docs"
ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):(?=<code>)")
"""Marks of references in docstrings that Markdown does not know."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file holds."""
    promises = (DOCS / "promises.md").read_text("utf-8")
    made = pages.write_reference(CHECKOUT)
    made["decisions/index.md"] = pages.list_decisions(CHECKOUT)
    made["modules.md"] = pages.list_modules(CHECKOUT)
    made[pages.TESTS] = pages.write_tests(promises, pages.find_covering(CHECKOUT))
    tops = {name: page for name, page in pages.TOP.items() if (CHECKOUT / name).is_file()}
    for name, page in tops.items():
        made[page] = pages.move_links((CHECKOUT / name).read_text("utf-8"), name)
    for page, content in made.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link statements; name the tests of promises."""
    place = page.file.src_uri
    if place == pages.TESTS or place.startswith("reference/"):
        return markdown
    if place not in pages.TOP.values():
        markdown = pages.move_links(markdown, f"docs/{place}")
    texts = {each.name: each.read_text("utf-8") for each in sorted(DOCS.glob("*.md"))}
    if place == "promises.md":
        markdown = pages.name_tests(markdown, pages.find_covering(CHECKOUT))
    return pages.link_statements(markdown, place, pages.find_statements(texts))


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show a reference of a docstring as code."""
    return ROLE.sub("", html) if page.file.src_uri.startswith("reference/") else html
