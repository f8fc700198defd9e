"""Decoding: every encoding people use is read, line ends are one, and what is no text is told apart."""

from __future__ import annotations

import codecs

import pytest

from sessiontree.survey.decoding import decode


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"a\r\nb\rc\n", "a\nb\nc\n"),
        (b"\r\r\n\n", "\n\n\n"),
        (codecs.BOM_UTF8 + b"a\r\n", "a\n"),
        (codecs.BOM_UTF16_LE + "aé\r\n".encode("utf-16-le"), "aé\n"),
        (codecs.BOM_UTF16_BE + "aé\r\n".encode("utf-16-be"), "aé\n"),
        (codecs.BOM_UTF32_LE + "aé\r\n".encode("utf-32-le"), "aé\n"),
        ("# -*- coding: latin-1 -*-\né".encode("latin-1"), "# -*- coding: latin-1 -*-\né"),
        ("#!x\n# vim: fileencoding=cp1252\n€".encode("cp1252"), "#!x\n# vim: fileencoding=cp1252\n€"),
        ("\x1b[1mü".encode(), "\x1b[1mü"),
    ],
)
def test_text_is_decoded_with_one_line_end(data: bytes, text: str) -> None:
    """Marks, UTF-8 and declarations decide; CRLF and a lone CR become LF."""
    decoded = decode(data)
    assert decoded is not None
    assert (decoded.text, decoded.problem) == (text, "")


@pytest.mark.parametrize(
    "data", [b"a\0b", b"\x89PNG\r\n\x1a\n\x01\x02\x03\xff", bytes(range(1, 256)), b"\xff\x01\x02\x03"]
)
def test_bytes_with_nul_or_many_controls_are_no_text(data: bytes) -> None:
    """Nothing is guessed out of a picture or a program."""
    assert decode(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"caf\xe9\n",
        b"# coding: no-such-codec\n\xe9",
        b"# coding: idna\n\xe9",
        b"# coding: rot13\n\xe9",
        b"# coding: gb2312\n\xff",
        b"# coding: latin-1\n"[:8] + b"\n\n# coding: latin-1\n\xe9",
    ],
)
def test_what_is_no_utf8_is_read_as_latin1_and_says_so(data: bytes) -> None:
    """An unknown, wrong or late declaration costs nothing but a sentence with the first bad byte."""
    decoded = decode(data)
    assert decoded is not None
    assert decoded.text == data.decode("latin-1")
    assert decoded.problem == f"no UTF-8 from byte {max(data.find(0xE9), data.find(0xFF))}; read as Latin-1"


@pytest.mark.parametrize("kept", range(1, 4))
def test_half_a_character_at_the_end_of_a_head_is_no_problem(kept: int) -> None:
    """Where only the head was read, its last character may be cut; a whole file's may not."""
    data = b"ab" + "\U0001f600".encode()[:kept]
    cut = decode(data, cut=True)
    whole = decode(data, cut=False)
    assert cut is not None
    assert whole is not None
    assert (cut.text, cut.problem) == ("ab", "")
    assert whole.problem


def test_half_a_character_after_a_mark_is_dropped_from_a_head_alone() -> None:
    """UTF-16 behaves as UTF-8: silent for a head, a problem for a whole file."""
    data = codecs.BOM_UTF16_LE + "ab".encode("utf-16-le")[:-1]
    cut, whole = decode(data, cut=True), decode(data)
    assert cut is not None
    assert whole is not None
    assert (cut.text, cut.problem) == ("a", "")
    assert whole.problem == "holds bytes that are no UTF-16-LE"
