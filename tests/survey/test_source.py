"""Source: any bytes give a finding, and the finding's numbers are right."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.finding import FileFinding
from sessiontree.survey.languages import languages
from sessiontree.survey.source import MAX_LINE_CHARS, analyse, unread

Survey = Callable[[str, str], FileFinding]
Analyse = Callable[[str, bytes, int], FileFinding]

NAMES = [
    *(f"x.{language.extensions[0]}" for language in languages() if language.extensions),
    *("Makefile", "x.png", "none", "a/\udcff.py"),
]
PIECES = (
    *(
        b"def f(x):\n",
        b"class A:\n",
        b"function f() {\n",
        b"import a\n",
        b"  return 1\n",
        b"}\n",
        b"{",
        b"(",
        b")",
    ),
    *(
        b'"',
        b"'",
        b'"""',
        b"`",
        b"#",
        b"//",
        b"/*",
        b"*/",
        b"\\",
        b"\n",
        b"\r",
        b"\r\n",
        b"\t",
        b"\x0c",
        b"\x0b",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\0",
        b"\xe9",
        "é…😀".encode(),
        b"\xed\xa0\x80",
        b"TODO: x\n",
        b"# coding: ",
    ),
    *(
        b"#if 0\n",
        b"#else\n",
        b"#endif\n",
        b"end\n",
        b"--[[",
        b"]]",
        b"<!--",
        b"interface{}",
        b": a{",
        b"-> ",
    ),
)
FILES = st.tuples(
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join) | st.binary(max_size=60),
    st.integers(0, 200),
)


def sound(look: Analyse, path: str, data: bytes, more: int) -> None:
    """A finding comes back, its counts agree with each other and with the text, and it has a JSON form."""
    finding = look(path, data, len(data) + more)
    assert "analysis failed" not in finding.problem, finding.problem
    assert finding.bytes == len(data) + more
    assert finding.lines == finding.code + finding.comment + finding.blank
    assert finding.functions + finding.classes == len(finding.definitions)
    for one in finding.definitions:
        assert 1 <= one.line <= one.end_line <= finding.lines
        assert one.name
    assert all(1 <= note.line <= finding.lines for note in finding.notes)
    if finding.kind == "text":
        text = data.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
        # half a character at the end of a head is dropped, and with it perhaps the only one of its line
        if not more and not data.startswith((b"\xff\xfe", b"\xef\xbb\xbf")):
            assert finding.lines == text.count("\n") + (not text.endswith("\n") and text != "")
    else:
        assert finding.lines == 0
    assert FileFinding.model_validate_json(finding.model_dump_json()) == finding


@given(FILES)
@settings(max_examples=400)
def test_any_bytes_under_any_name_give_a_sound_finding(file: tuple[str, bytes, int]) -> None:
    """Nothing raises, no number contradicts another, and every place that is named exists."""
    sound(analyse, *file)


def test_counting_lines_as_python_splits_them_is_found_out() -> None:
    """The property kills a count that ends lines at form feeds and other separators."""

    def planted_count(path: str, data: bytes, total_bytes: int) -> FileFinding:
        finding = analyse(path, data, total_bytes)
        lines = len(data.decode("utf-8", "replace").splitlines()) if finding.kind == "text" else 0
        return finding.model_copy(update={"lines": lines, "code": lines, "comment": 0, "blank": 0})

    @settings(max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(FILES)
    def planted(file: tuple[str, bytes, int]) -> None:
        sound(planted_count, *file)

    with pytest.raises(AssertionError):
        planted()


def counted_by_tokens(text: str) -> tuple[int, int, int]:
    """Return code, comment and blank lines as the language's own tokenizer tells them."""
    lines = text.splitlines()
    code: set[int] = set()
    comment: set[int] = set()
    layout = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment.add(token.start[0])
        elif token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and ast.get_docstring(node, clean=False) is not None:
                documented = set(range(first.lineno, (first.end_lineno or 0) + 1))
                comment |= documented
                code -= documented
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()}
    # a line joined by a backslash has no token of its own where only the backslash stands on it
    code |= {number for number, line in enumerate(lines, 1) if line.strip() == "\\"}
    return len(code - blank), len(comment - code - blank), len(blank)


@pytest.mark.slow
def test_python_lines_are_counted_as_the_tokenizer_tells_them(python_files: list[Path]) -> None:
    """Code, comment and blank lines of real files are exactly those of the language's own tokenizer."""
    for path in python_files:
        data = path.read_bytes()
        finding = analyse(path.name, data, len(data))
        assert (finding.code, finding.comment, finding.blank) == counted_by_tokens(data.decode("utf-8")), path


def test_an_empty_file_is_text_without_lines(survey_text: Survey) -> None:
    """Nothing in it, nothing wrong with it."""
    finding = survey_text("a.py", "")
    assert (finding.kind, finding.language, finding.lines, finding.problem) == ("text", "Python", 0, "")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_marks_change_nothing(survey_text: Survey, end: str, mark: str) -> None:
    """LF, CRLF, a lone CR and a byte order mark give the same lines, definitions and notes."""
    text = "# TODO x\ndef f():\n    '''Doc\n    more'''\n\n    return 1\n"
    finding = survey_text("a.py", mark + text.replace("\n", end))
    assert (finding.lines, finding.code, finding.comment, finding.blank) == (6, 2, 3, 1)
    assert [(one.name, one.line, one.end_line) for one in finding.definitions] == [("f", 2, 6)]
    assert [(note.line, note.text) for note in finding.notes] == [(1, "TODO x")]
    assert finding.problem == ""


def test_a_head_says_how_much_was_read_and_keeps_what_it_shows() -> None:
    """The beginning of a longer file is searched line by line; no false syntax error is reported."""
    data = b"import os\ndef f():\n    return 1\nclass A:\n    def g(self):\n        x = ["
    finding = analyse("a.py", data, 5_000_000)
    assert finding.problem == f"only the first {len(data)} of 5,000,000 bytes were read"
    assert finding.bytes == 5_000_000
    assert [one.name for one in finding.definitions] == ["f", "A", "A.g"]
    assert finding.imports == ("os",)


def test_bytes_that_are_no_utf8_are_named_and_read() -> None:
    """One Latin-1 letter costs a problem, not the file."""
    data = b"# caf\xe9\ndef f():\n    return 1\n"
    finding = analyse("a.py", data, len(data))
    assert finding.problem == "no UTF-8 from byte 5; read as Latin-1"
    assert (finding.kind, finding.functions, finding.comment) == ("text", 1, 1)


def test_binary_files_are_a_problem_only_where_text_was_expected() -> None:
    """A picture is a picture; a Python file full of NUL bytes is worth a word."""
    picture = analyse("a.png", b"\x89PNG\0\0", 3_000_000)
    assert (picture.kind, picture.language, picture.problem) == ("binary", "Binary", "")
    assert picture.bytes == 3_000_000
    odd = analyse("a.py", b"import os\0", 10)
    assert odd.kind == "binary"
    assert odd.problem == "named like Python but is no text; counted as binary"


def test_one_endless_line_is_a_file_like_any_other() -> None:
    """A head of two million characters without a line end is one line, in any language."""
    data = b"a" * 2_000_000
    for name in ("x.py", "x.js", "x.c", "x.rb", "x.json", "x.md", "x"):
        finding = analyse(name, data, 1_000_000_000)
        assert (finding.kind, finding.lines, finding.bytes) == ("text", 1, 1_000_000_000)
        assert finding.problem.startswith("only the first 2,000,000 of 1,000,000,000 bytes were read")


def test_a_line_just_short_enough_is_searched(survey_text: Survey) -> None:
    """The bound on a line's length is exact."""
    fits = "function a() { /**/" + "x" * (MAX_LINE_CHARS - 19 + 3) + "\n}"
    assert len(fits.split("\n")[0].replace("/**/", " ")) == MAX_LINE_CHARS
    assert survey_text("a.js", fits).functions == 1
    assert survey_text("a.js", fits.replace("xx", "xxx", 1)).functions == 0


def test_of_too_many_definitions_the_longest_stay_and_all_are_counted(survey_text: Survey) -> None:
    """A generated file does not make a finding of any size."""
    text = "def a(): pass\n" * 3_000 + "def long():\n    x\n    return 1\n"
    finding = survey_text("a.py", text)
    assert finding.functions == 3_001
    assert len(finding.definitions) == 2_000
    assert finding.definitions[-1].name == "long"
    assert [one.name for one in finding.largest_functions(1)] == ["long"]


def test_a_path_that_is_no_utf8_gets_a_form_that_is() -> None:
    """Bytes of a name survive as escapes, so that the finding can be sent and stored."""
    assert analyse("a/\udcff.py", b"", 0).path == "a/\\udcff.py"
    assert unread("\udcff", "gone").path == "\\udcff"


def test_a_failing_analysis_is_a_problem_of_its_file_alone() -> None:
    """Even a mistake of ours costs one finding: a size that is no number is reported, not raised."""
    finding = analyse("a.py", b"x", float("nan"))  # type: ignore[arg-type]
    assert finding.kind == "unread"
    assert finding.problem.startswith("analysis failed")
