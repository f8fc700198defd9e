"""Syntax: comments and strings leave the text, lines stay, and no text takes more than linear time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.syntax import STRING_LINE, SYNTAXES, masked, scanner

Mask = Callable[[str, str], str]
PIECES = (
    *("/*", "*/", "//", "#", "--", "--[[", "]]", "[[", "[=[", "]=]", "{-", "-}", "(*", "*)", "#|", "|#"),
    *(
        '"',
        "'",
        '"""',
        "'''",
        "`",
        "\\",
        'R"x(',
        ')x"',
        'r#"',
        '"#',
        "<!--",
        "-->",
        "<#",
        "#>",
        "=begin",
        "=end",
    ),
    *("\n", " ", "\t", "a", "{", "}", "(", ")", ";", "=", "/", "%", "%{", "%}", "é", "\x00", "return "),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@pytest.mark.parametrize(
    ("syntax", "text", "expected"),
    [
        ("c", "a /* b { */ c // d\n", "a   c  \n"),
        ("c", 'x = "/* no */ {"; // yes\n', 'x = "";  \n'),
        ("c", "c = '\"'; d = '{';\n", 'c = ""; d = "";\n'),
        ("c", "/* a\nb */ c\n", "\n c\n"),
        ("c", "/* never closed\nx {", "\n"),
        ("python", '"""a # b\n\n{\n"""\n# c', f'""\n\n{STRING_LINE}\n{STRING_LINE}\n '),
        ("python", "x = 'a\\'#' # b", 'x = ""  '),
        ("python", "'open\ny # c", '""\ny  '),
        ("shell", "echo $# ${#a} a#b # c\n", "echo $# ${#a} a#b  \n"),
        ("lua", "--[==[ a ]] b ]==] c -- d", "  c  "),
        ("lua", "x = [[a\n--b]]", f'x = ""\n{STRING_LINE}'),
        ("javascript", "a = /[\"'/]/g; b = c / d // e", 'a = ""g; b = c / d  '),
        ("javascript", "`a ${b}\n// c`", f'""\n{STRING_LINE}'),
        ("rust", "fn f<'a>(x: &'a str) { '{'; }", "fn f<'a>(x: &'a str) { \"\"; }"),
        ("rust", 'r#"a " // b"# c', '"" c'),
        ("cpp", 'R"x(a )" // b)x" c', '"" c'),
        ("csharp", '@"a\\" + "b" // c', '"" + ""  '),
        ("go", "`a\n{` // b", f'""\n{STRING_LINE}  '),
        ("sql", "select '--' -- x", 'select ""  '),
        ("ruby", "=begin\n{\n=end\nx # y", "\n\n\nx  "),
        ("none", "# a // b", "# a // b"),
    ],
)
def test_comments_and_strings_are_taken_out(syntax: str, text: str, expected: str) -> None:
    """What looks like a comment inside a string stays a string, and the other way round."""
    assert masked(text, syntax) == expected


def lines_stay(mask: Mask, text: str, syntax: str) -> None:
    """Masking keeps the number of lines, and makes no line of code out of a blank one."""
    before, after = text.split("\n"), mask(text, syntax).split("\n")
    assert len(before) == len(after)
    assert not [number for number, line in enumerate(before) if not line.strip() and after[number].strip()]


@given(TEXTS, st.sampled_from(sorted(SYNTAXES)))
def test_masking_keeps_every_line(text: str, syntax: str) -> None:
    """Line numbers mean the same before and after, whatever opens and never closes."""
    lines_stay(masked, text, syntax)


@pytest.mark.slow
def test_a_mask_that_forgets_line_ends_is_found_out() -> None:
    """The property kills a mask that drops the lines of a block comment."""

    def forgetful(text: str, syntax: str) -> str:
        pattern = scanner(syntax)
        return text if pattern is None else pattern.sub("", text)

    @settings(max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(TEXTS)
    def planted(text: str) -> None:
        lines_stay(forgetful, text, "c")

    with pytest.raises(AssertionError):
        planted()


@pytest.mark.slow
@pytest.mark.parametrize("syntax", sorted(SYNTAXES))
def test_masking_is_linear_in_every_syntax(syntax: str) -> None:
    """A text of one piece repeated, which opens again and again, takes no more than its length's time."""
    for piece in PIECES:
        text = piece * (20_000 // len(piece))
        started = time.process_time()
        masked(text, syntax)
        # quadratic behaviour would take seconds
        assert time.process_time() - started < 0.3, piece
