"""Which bytes are text, and in which letters."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree_tools.web import Sort, decoded, page_kind
from tests.tools.web_fakes import page_of

WORDS = "grüße, їжак"


@pytest.mark.parametrize(
    ("body", "charset", "wanted"),
    [
        (WORDS.encode(), "utf-8", WORDS),
        (WORDS.encode(), None, WORDS),
        (WORDS.encode("cp1251", "replace"), "windows-1251", "gr??e, їжак"),
        ("їжак".encode("koi8-u"), "KOI8-U", "їжак"),
        ("grüße\u2019".encode("cp1252"), "iso-8859-1", "grüße\u2019"),
        ("grüße".encode("latin-1"), None, "grüße"),
        (codecs.BOM_UTF8 + WORDS.encode(), "iso-8859-1", WORDS),
        (codecs.BOM_UTF16_LE + WORDS.encode("utf-16-le"), None, WORDS),
        (codecs.BOM_UTF16_BE + WORDS.encode("utf-16-be"), "utf-8", WORDS),
        (WORDS.encode("utf-16-le"), "utf-16", WORDS),
        ("日本語".encode("cp932"), "Shift_JIS", "日本語"),
        ("日本語".encode("euc_jp"), "euc-jp", "日本語"),
        ("汉字".encode("gb18030"), "gb2312", "汉字"),
        (
            b'<meta charset="windows-1251">' + "їжак".encode("cp1251"),
            None,
            '<meta charset="windows-1251">їжак',
        ),
        (b'<meta charset="koi8-u">\xc4', "utf-8", '<meta charset="koi8-u">\ufffd'),
        (
            b'<meta content="text/html; charset=cp1251">\xbf',
            None,
            '<meta content="text/html; charset=cp1251">ї',
        ),
        (b'<?xml version="1.0" encoding="koi8-r"?>\xc1', None, '<?xml version="1.0" encoding="koi8-r"?>а'),
        (b"<meta charset=utf-16>x", None, "<meta charset=utf-16>x"),
        (b"a\xffb", "utf-8", "a\ufffdb"),
        (b"+ADw-script+AD4-", "utf-7", "+ADw-script+AD4-"),
        (b"\\u003cx", "unicode_escape", "\\u003cx"),
        (b"x", "idna", "x"),
        (b"x", "zlib_codec", "x"),
        (b"x", "no\0name", "x"),
        (b"x", "z" * 5000, "x"),
    ],
)
def test_characters_are_those_a_browser_shows(body: bytes, charset: str | None, wanted: str) -> None:
    """Mark, header, the page itself, UTF-8, Windows-1252; encodings of Python's own are not followed."""
    assert decoded(page_of(body, charset=charset)) == wanted


def test_cut_inside_a_character_is_still_utf8() -> None:
    """A body that was cut ends anywhere."""
    body = WORDS.encode()[:-1]
    assert decoded(page_of(body, charset=None, truncated=True)) == WORDS[:-1] + "\ufffd"


@given(
    st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=12), st.sampled_from(["utf-16", "big5"]))
)
def test_any_bytes_become_text(body: bytes, charset: str | None) -> None:
    """Whatever they are said to be."""
    page = page_of(body, charset=charset, content_type="")
    assert isinstance(decoded(page), str)
    assert page_kind(page) in {"html", "text", "binary"}


@pytest.mark.parametrize(
    ("content_type", "body", "sort"),
    [
        ("text/html", b"x", "html"),
        ("application/xhtml+xml", b"x", "html"),
        ("application/json", b"x", "json"),
        ("application/problem+json", b"x", "json"),
        ("text/markdown", b"<html>", "text"),
        ("application/xml", b"x", "text"),
        ("image/svg+xml", b"<svg/>", "text"),
        ("application/x-ndjson", b"x", "text"),
        ("application/octet-stream", b"text really", "binary"),
        ("text/plain", b"a\0b", "binary"),
        ("image/png", b"x", "binary"),
        ("", b"  <!DOCTYPE html><p>", "html"),
        ("", b"<!-- x --><html>", "html"),
        ("", b"just words <html>", "text"),
        ("", b"\x7fELF\0", "binary"),
        ("", codecs.BOM_UTF16_LE + b"a\0", "text"),
    ],
)
def test_sort_of_page(content_type: str, body: bytes, sort: Sort) -> None:
    """By its type; by its first bytes where it has none, or where they can't be text."""
    assert page_kind(page_of(body, content_type=content_type, charset=None)) == sort
