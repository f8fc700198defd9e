"""``write_html``: files of a page, and what is said about them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.pages.write_html import WriteHtml

GOOD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Bees</title>
<link rel="stylesheet" href="style/main.css"><link rel="canonical" href="https://bees.example/"></head>
<body><ul><li>one<li>two</ul><p>text<p>more<svg viewBox="0 0 1 1"><path d="M0 0"/></svg>
<a href="https://elsewhere.example/">out</a><a href="#top">up</a><img src="bee.png?v=2" alt="">
<a href="mailto:a@b.example">write</a></body></html>
"""


async def write(root: Path, filename: str, content: str) -> dict[str, Any]:
    """Write a file of a page; return the output."""
    output = (await call_tool(WriteHtml(), make_context(root), filename=filename, content=content)).output
    assert isinstance(output, dict)
    return output


def files_in(root: Path) -> list[str]:
    """Return every name below a folder."""
    return [path.relative_to(root).as_posix() for path in root.rglob("*")]


@pytest.mark.covers("U17")
async def test_good_page_is_written_and_nothing_is_to_be_seen_to(tmp_path: Path) -> None:
    """The file holds the content; end tags that may be left out are no fault, nor is a link to elsewhere."""
    (tmp_path / "site/style").mkdir(parents=True)
    (tmp_path / "site/style/main.css").touch()
    (tmp_path / "site/bee.png").touch()
    result = await call_tool(WriteHtml(), make_context(tmp_path), filename="site/index.html", content=GOOD)
    size = len(GOOD.encode())
    assert result.output == {"success": True, "path": "site/index.html", "size": size, "created": True}
    assert (tmp_path / "site/index.html").read_text() == GOOD
    assert result.artifacts == (Artifact("file", "created", path="site/index.html"),)
    assert result.display == f"wrote {size} bytes to site/index.html"


@pytest.mark.covers("U17")
async def test_faults_and_references_that_lead_nowhere_are_named(tmp_path: Path) -> None:
    """Each with its line; the file is written all the same."""
    page = (
        '<html>\n<div id="a"><span></div>\n<p id="a">x</b>\n<div/>\n<img src="no.png" src="no.png">'
        '<script src="https://cdn.example/x.js"></script><a href="/about.html">a</a>'
        '<a href="../../up.html">u</a>'
    )
    output = await write(tmp_path, "page.html", page)
    assert output["problems"] == [
        "line 1: <!doctype html> is missing",
        "line 2: <span> is not closed before </div>",
        "line 3: id 'a' is used twice",
        "line 3: </b> ends nothing",
        "line 4: <div/> does not end the element; write </div>",
        "line 4: <div> is not closed",
        "line 5: <img> has an attribute twice",
    ]
    assert output["missing"] == ["no.png", "../../up.html"]
    assert output["rooted"] == ["/about.html"]
    assert output["external"] == ["https://cdn.example/x.js"]
    assert (tmp_path / "page.html").read_text() == page


async def test_style_sheets_are_read_too(tmp_path: Path) -> None:
    """Their images, fonts and imports; relative to the sheet."""
    (tmp_path / "a.png").touch()
    sheet = "@import 'https://fonts.example/f.css';b{background:url(../a.png)}i{background:url( \"c.png\" )}"
    output = await write(tmp_path, "css/main.css", sheet)
    assert (output["missing"], output["external"]) == (["c.png"], ["https://fonts.example/f.css"])


async def test_what_is_shown_is_bounded(tmp_path: Path) -> None:
    """Twenty of each kind; the rest is counted."""
    output = await write(tmp_path, "a.html", "<!doctype html>" + "".join(f"<i{n}>" for n in range(90)))
    assert (len(output["problems"]), output["left_out"]) == (20, 70)


@pytest.mark.parametrize(
    ("filename", "content", "error", "words"),
    [
        ("run.py", "x", ValidationError, "html, htm, css"),
        ("page", "x", ValidationError, "html"),
        (".html", "x", ValidationError, "html"),
        ("../page.html", "x", PermissionDenied, "outside"),
        ("a/b\0.html", "x", ExecutionError, "NUL"),
        ("page.html", "half \ud83d", ValidationError, "surrogate"),
        ("page.html", "x" * 1_000_001, ValidationError, "1,000,000"),
    ],
)
async def test_what_is_no_file_of_a_page_is_refused(
    tmp_path: Path, filename: str, content: str, error: type[Exception], words: str
) -> None:
    """Nothing is written then."""
    (tmp_path / "root").mkdir()
    with pytest.raises(error, match=words):
        await write(tmp_path / "root", filename, content)
    assert files_in(tmp_path) == ["root"]


HOSTILE = {
    "deep": "<div>" * 100_000,
    "comment": "<!--" * 100_000,
    "declaration": "<!" * 200_000,
    "attributes": "<a " + "b='" * 200_000,
    "ends": "<a>" * 20_000 + "</b>" * 80_000,
    "entities": "&#" * 300_000,
    "section": "<![x[" * 100_000,
    "script": "<script>" * 50_000,
}


@pytest.mark.parametrize("page", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.long
async def test_hostile_markup_ends_in_bounded_time(tmp_path: Path, page: str) -> None:
    """It is written with remarks, or refused because it takes too long; never a hang."""
    begun = time.monotonic()
    try:
        await write(tmp_path, "page.html", page)
    except ExecutionError as error:
        assert "Nothing was written" in error.message
        assert files_in(tmp_path) == []
    assert time.monotonic() - begun < 40
