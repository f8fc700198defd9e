"""Source: one file's count and contribution, whatever its bytes are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.survey.source.census import Findings
from sessiontree.survey.source.source import MAX_PARSED_BYTES, SourceFile, collect_findings, read_source
from tests.example_fixtures import examples


def read(path: str, text: str) -> SourceFile:
    """Return what a file with this text is."""
    data = text.encode()
    return read_source(path, data, len(data))


def test_source_counts_lines_of_code_comments_and_blanks() -> None:
    """Parsed files by their comments, others by how their lines begin."""
    totals = read("a.py", '"""Doc."""\n\n# one\ndef f():\n    return 1  # two\n').totals
    assert (totals.lines, totals.code, totals.comment, totals.blank) == (5, 2, 2, 1)
    assert (totals.functions, totals.classes) == (1, 0)
    lua = read("a.lua", "-- one\nx = 1\n\n").totals
    assert (lua.lines, lua.code, lua.comment, lua.blank) == (3, 1, 1, 1)
    assert read("run", "#!/usr/bin/env python3\nx = 1\n").language == "Python"
    assert read("notes.xyz", "one\n").language == "Other text"


def test_source_that_is_not_text_is_binary() -> None:
    """By its bytes or its name; named like a program, it is a problem."""
    assert read_source("a.py", b"\0\1", 2).problem == "named like Python, but it is not text"
    assert (read("a.png", "text").language, read("a.png", "text").problem) == ("Binary", "")


def test_source_that_is_too_large_is_not_parsed() -> None:
    """Its lines are counted; generated files of one long line are not parsed either."""
    large = read("a.py", "def f(): pass\n" * (MAX_PARSED_BYTES // 14 + 1))
    assert large.symbols.symbols == ()
    assert "not parsed: it is larger" in large.problem
    assert large.totals.lines == MAX_PARSED_BYTES // 14 + 1
    long = read("a.js", f"x = '{'y' * 30_000}'\n")
    assert "a line of more than 20,000 characters" in long.problem
    cut = read_source("a.py", b"def f(): pass\n", 5_000_000)
    assert cut.symbols.symbols == ()
    assert "only the first 14 of 5,000,000 bytes" in cut.problem


def test_findings_hold_notes_of_comments_alone() -> None:
    """A note in a text is not one; each has its line."""
    found = collect_findings(read("a.py", 'x = "TODO no"\n# TODO: mend\n# a\n#\n# FIXME\n'))
    assert [(note.line, note.text) for note in found.notes] == [(2, "TODO: mend"), (5, "FIXME")]


def test_findings_hold_what_a_newcomer_asks() -> None:
    """Entry points, public names, what packages say, and imports from outside."""
    package = (
        'from pkg.core import Core as Core\nfrom pkg.more import (\n    a,\n    b as c,\n)\n"""no doc"""\n'
    )
    public = collect_findings(read("src/pkg/__init__.py", package))
    assert public.public[0].names == ("Core", "a", "c")
    listed = collect_findings(read("pkg/__init__.py", '"""What it is."""\n__all__ = ["x", "y"]\n'))
    assert (listed.public[0].names, listed.about[0].text) == (("x", "y"), "What it is.")
    ts = "export { a, b as c } from './x';\nexport class D {}\nexport const e = 1;\nexport * as z from 'z';\n"
    assert collect_findings(read("src/index.ts", ts)).public[0].names == ("a", "c", "D", "e", "z")
    rust = "pub use crate::a::B;\npub fn f() {}\nfn g() {}\n"
    assert collect_findings(read("src/lib.rs", rust)).public[0].names == ("crate::a::B", "f")
    go = "package gin\nfunc New() {}\nfunc own() {}\n"
    assert collect_findings(read("gin.go", go)).public[0].names == ("New",)
    assert collect_findings(read("tests/__init__.py", "from a import b\n")).public == ()
    main = collect_findings(read("src/pkg/__main__.py", "run()\n")).starts[0]
    assert main.text == "python -m pkg"
    start = collect_findings(read("cli.py", 'x = 1\nif __name__ == "__main__":\n    x()\n')).starts[0]
    assert (start.line, start.text) == (2, 'if __name__ == "__main__"')
    assert collect_findings(read("a.go", "package a\nfunc main() {}\n")).starts == ()
    assert collect_findings(read("tests/test_a.py", 'if __name__ == "__main__":\n    x()\n')).starts == ()
    imports = "import os\nfrom . import a\nfrom b.c import d\n"
    assert collect_findings(read("a.py", imports)).imports == {"os": 1, "b": 1}
    assert collect_findings(read("a.go", 'package a\nimport "github.com/x/y/z"\n')).imports == {
        "github.com/x/y": 1
    }
    assert collect_findings(read("a.ts", 'import "@x/y/z";\nimport "./q";\n')).imports == {"@x/y": 1}


def test_findings_know_equal_functions() -> None:
    """Bodies that differ in white space alone have one digest; short ones have none."""
    body = "".join(f"    x = {number}\n" for number in range(9))
    one = collect_findings(read("a.py", f"def f():\n{body}")).copies
    two = collect_findings(
        read("b.py", f"class A:\n    def g(self):\n{body.replace('    ', '        ')}")
    ).copies
    assert one[0].text == two[0].text
    assert collect_findings(read("a.py", "def f():\n    pass\n")).copies == ()


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sampled_from(
        ["a.py", "b.ts", "c.md", "d.rs", "package.json", "README", "pyproject.toml", "x/y.go", "z"]
    ),
    st.binary(max_size=400),
    st.integers(0, 50),
)
def test_source_never_raises(path: str, data: bytes, more: int) -> None:
    """Any bytes under any name are counted; lines add up; the findings survive their own JSON."""
    file = read_source(path, data, len(data) + more)
    totals = file.totals
    assert totals.lines == totals.code + totals.comment + totals.blank
    assert min(totals.code, totals.comment, totals.blank) >= 0
    found = collect_findings(file)
    assert Findings.model_validate_json(found.model_dump_json()) == found
