"""Report: what a newcomer asks comes first, and nothing from a file is taken for Markdown or HTML."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.survey.earlier import MARKER
from sessiontree.survey.report import quote_code, render
from sessiontree.survey.source.census import Findings, Place, merge
from sessiontree.survey.source.source import collect_findings, read_source

BODY = "".join(f"    x{number} = {number}\n" for number in range(9))
FILES = {
    "README.md": "# Thing\n\nThing does one thing well.\n",
    "pyproject.toml": '[project]\nname = "thing"\ndescription = "Does it."\ndependencies = ["ray"]\n'
    'scripts = { thing = "thing.cli:main" }\n',
    "Makefile": "test: ## run the tests\n",
    "src/thing/__init__.py": "from thing.core import Core as Core\n",
    "src/thing/core.py": f"import os\nimport httpx\n# TODO: mend\ndef f(x):\n    if x:\n        pass\n{BODY}",
    "src/thing/copy.py": f"def g(y):\n    if x:\n        pass\n{BODY}",
}
ORDER = [
    "What this is",
    "Where it starts",
    "Public API",
    "How it is built and tested",
    "What it depends on",
    "Census",
    "Languages",
    "Folders",
    "Longest functions",
    "Most complex functions",
    "Largest files",
    "Likely duplicates",
    "Notes",
    "Problems",
]


def report() -> str:
    """Return the report on all files, and one problem."""
    parts = [collect_findings(read_source(path, text.encode(), len(text))) for path, text in FILES.items()]
    return render(merge([*parts, Findings(problems=(Place(path="pipe", text="odd"),))]), "thing")


def test_render_begins_with_what_a_newcomer_asks() -> None:
    """Purpose, entry points, public names, commands and dependencies; the census comes after."""
    text = report()
    assert text.startswith(f"{MARKER}\n# Survey of `thing`\n")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ORDER
    for line in (
        "- `README.md`: `Thing does one thing well.`",
        "- `pyproject.toml`: `thing: Does it.`",
        "- `thing = thing.cli:main`, from `pyproject.toml`",
        "- `src/thing/__init__.py`: `Core`",
        "- `Makefile`: `make test: run the tests`",
        "- `pyproject.toml`: `ray`",
        "- imported most often, with the number of files: `httpx` (1)",
        "- `src/thing/core.py#L3` `TODO: mend`",
        "- `src/thing/core.py#L4` `f`: 2",
        "- 12 lines, 2 times: `src/thing/copy.py#L1` `g`, `src/thing/core.py#L4` `f`",
        "- `pipe`: `odd`",
    ):
        assert f"\n{line}\n" in text


def test_render_of_nothing_is_a_report_too() -> None:
    """An empty directory has a census of zeros, and no empty section."""
    text = render(Findings(), "empty")
    assert "- Files: 0 " in text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Census"]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("", "`(empty)`"),
        ("a\u202eb\x1b\n", "`a\\u202eb\\x1b\\n`"),
        ("a|b", "`a\\x7cb`"),
    ],
)
def test_code_is_one_span(text: str, span: str) -> None:
    """Backticks, invisible characters and cell borders mean nothing in it."""
    assert quote_code(text, in_table=True) == span


@given(st.text(max_size=120))
def test_code_spans_hold_any_text(text: str) -> None:
    """One line, printable, opened and closed by the same run of backticks, which is not inside."""
    span = quote_code(text)
    assert span.isprintable()
    fence = re.match(r"`+", span)
    assert fence is not None
    inner = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall(r"`+", inner)
    assert span.endswith(fence[0])
