"""The site's pages, links and anchors hold together; the site's environment and its builder are not needed.

``make docs`` builds the site with the builder's own checks.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import sessiontree

CHECKOUT = Path(__file__).resolve().parents[3]
DOCS = CHECKOUT / "docs"
BUILT = frozenset({"docs/coverage.md"})
"""Pages that are not in the site."""
FENCED = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The module that makes the generated pages."""
    spec = importlib.util.spec_from_file_location("site_pages", CHECKOUT / ".ci" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documents() -> dict[str, str]:
    """Return the documents of the checkout by their path."""
    files = [*CHECKOUT.glob("*.md"), *DOCS.rglob("*.md")]
    return {path.relative_to(CHECKOUT).as_posix(): path.read_text("utf-8") for path in files}


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")
        for heading in HEADING.findall(text)
    }


def broken_links(texts: Mapping[str, str], checkout: Path) -> list[str]:
    """Return the links of documents that lead to no file, or to no heading of a document.

    Args:
        texts: Documents by their path in the checkout.
        checkout: Where other files are looked for.
    """
    found = []
    for place, text in texts.items():
        for link in LINK.findall(FENCED.sub("", text)):
            target, _, fragment = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            path = (checkout / place).parent / target if target else checkout / place
            name = path.resolve().relative_to(checkout.resolve()).as_posix()
            is_missing = name not in texts and not path.exists()
            if is_missing or (fragment and fragment not in anchors(texts.get(name, ""))):
                found.append(f"{place}: {link}")
    return found


def pages_of(nav: Iterable[Any]) -> list[str]:
    """Return the pages of a navigation, in order."""
    found: list[str] = []
    for entry in nav:
        values = entry.values() if isinstance(entry, dict) else [entry]
        for value in values:
            found += pages_of(value) if isinstance(value, list) else [value]
    return found


def test_every_link_leads_somewhere() -> None:
    """Files, pages and headings that documents link to are there."""
    assert broken_links(documents(), CHECKOUT) == []


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("b.md", False),
        ("b.md#a-heading-of-b", False),
        ("#top", False),
        ("https://example.org/x#y", False),
        ("c.md", True),
        ("b.md#nowhere", True),
        ("#nowhere", True),
    ],
)
def test_planted_broken_link_is_found(tmp_path: Path, link: str, is_broken: bool) -> None:
    """A file that is missing, and a heading that is missing, there or on the page itself."""
    texts = {
        "docs/a.md": f"# Top\n\n[x]({link}); `[y](code.md)`\n",
        "docs/b.md": "# B\n\n## A heading of `b`\n",
    }
    assert broken_links(texts, tmp_path) == ([f"docs/a.md: {link}"] if is_broken else [])


def test_navigation_has_every_page_once(pages: ModuleType) -> None:
    """Each page of the folder and each generated page, and nothing else. One page lists the decisions."""
    config = yaml.safe_load((CHECKOUT / ".ci" / "mkdocs.yml").read_text("utf-8"))
    named = pages_of(config["nav"])
    assert [page for page, times in Counter(named).items() if times > 1] == []
    written = {path.removeprefix("docs/") for path in documents().keys() - BUILT if path.startswith("docs/")}
    made = {page for name, page in pages.TOP.items() if (CHECKOUT / name).is_file()}
    made |= {*pages.write_reference(CHECKOUT), pages.TESTS, "decisions/index.md", "modules.md"}
    assert set(named) == {page for page in written if not page.startswith("decisions/")} | made


def test_reference_has_every_public_name_once(pages: ModuleType) -> None:
    """A name of the package's list is in one group."""
    grouped = pages.group_names(pages.read_public_names(CHECKOUT / "sessiontree" / "__init__.py"))
    names = Counter(name for found in grouped.values() for name in found)
    assert {name for name, times in names.items() if times > 1} == set()
    assert {name for name in sessiontree.__all__ if not name.startswith("__")} - names.keys() == set()
    assert all(grouped.values())


def test_statements_become_anchors_and_links(pages: ModuleType) -> None:
    """A definition has an anchor; a citation leads to it from any folder; code and words alike stay."""
    text = "# A\n\n- ABC1. It holds (XYZ2).\n- ABC2. `XYZ2` is code.\n\nSee ABC1 and UTF8.\n"
    linked = pages.link_statements(text, "start/a.md", {"ABC1": "a.md", "ABC2": "a.md", "XYZ2": "b.md"})
    assert linked == (
        '# A\n\n- <span id="abc1"></span>**ABC1.** It holds ([XYZ2](../b.md#xyz2)).\n'
        '- <span id="abc2"></span>**ABC2.** `XYZ2` is code.\n\nSee [ABC1](../a.md#abc1) and UTF8.\n'
    )


def test_promises_name_their_tests(pages: ModuleType) -> None:
    """Each statement is followed by links to its tests, whose sources are on one page."""
    promises = "# P\n\n- ABC1. It\n  holds.\n- ABC2. So does this.\n\n## Not promised\n\n- ABC3. This.\n"
    covering = {"ABC1": [("tests/test_a.py", "test_it_holds", "def test_it_holds(): ...")]}
    said = pages.name_tests(promises, covering)
    assert "- ABC1. It\n  holds.<br>*Held by [it holds](tests.md#test-a-test-it-holds)*\n- ABC2." in said
    assert said.endswith("\n## Not promised\n\n- ABC3. This.\n")
    assert "{#test-a-test-it-holds}" in pages.write_tests(promises, covering)


def test_links_of_documents_at_the_top_lead_into_the_site(pages: ModuleType) -> None:
    """Pages are found where the site has them; what is not in the site is its text."""
    text = "[a](docs/a.md#x) [b](ARCHITECTURE.md) [c](notebooks/c.ipynb) [d](https://example.org)"
    assert (
        pages.move_links(text, "README.md") == "[a](a.md#x) [b](architecture.md) c [d](https://example.org)"
    )
    assert pages.move_links("[r](../../README.md) [n](../none.md)", "docs/start/x.md") == (
        "[r](../index.md) [n](../none.md)"
    )
