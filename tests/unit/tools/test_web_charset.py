"""Which bytes are text, and in which letters."""

from __future__ import annotations

import codecs

import pytest
import webencodings.labels
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.handles.ports import Page
from sessiontree_tools.web.web_characters import DECLARED_BYTES, DecodedPage, Sort, decode_page, page_kind
from tests.unit.tools.web_fakes import page_of

WORDS = "grüße, їжак"


def decoded(page: Page) -> str:
    """Return a page's characters."""
    return decode_page(page).text


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


def word_in(name: str) -> tuple[str, bytes]:
    """Return a letter beyond ASCII, and its bytes in an encoding of the web."""
    codec = webencodings.lookup(name).codec_info
    for letter in "éяшあ漢한αאعไ\uf780ĉłđ":
        try:
            data, _ = codec.encode(letter)
        except UnicodeEncodeError:
            continue
        return letter, bytes(data)
    raise AssertionError(f"no letter is known in {name}")


def test_every_label_of_the_standard_is_followed() -> None:
    """In the header, in a ``meta`` of either form, in any case, with spaces around it."""
    labels = webencodings.labels.LABELS
    assert len(labels) > 220
    for label, name in labels.items():
        if name == "replacement":
            for page in (
                page_of(b"x", charset=label),
                page_of(b"<meta charset=%b>" % label.encode(), charset=None),
            ):
                found = decode_page(page)
                assert found.text == "\ufffd", label
                assert "not decoded on the web" in found.note
            continue
        letter, data = word_in(name)
        for written in (label, label.upper(), f" {label} "):
            assert decode_page(page_of(data, charset=written)) == DecodedPage(letter), written
        inside = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}.get(name, name)
        letter, data = word_in(inside)
        for meta in (
            f"<meta charset={label}>",
            f"<META  data-x='>' CharSet = \"{label}\" />",
            f"<meta http-equiv=Content-Type content='text/html; charset={label}'>",
            f"<meta http-equiv=content-type content='charset={label};'>",
        ):
            assert decode_page(page_of(meta.encode() + data, charset=None)) == DecodedPage(meta + letter), (
                meta
            )


@pytest.mark.parametrize(
    "before",
    [
        b"<style>" + b"a {}" * 2000 + b"</style>",
        b"<!--" + b"x" * 5000 + b"-->",
        b"<!--><script>'<meta charset=koi8-r>'</script>",
        b"<!-- <meta charset=koi8-r> -->",
        b"<title><meta charset=koi8-r></title>",
        b"<meta charset=no-such-name>",
        b"<meta name=x content='text/html; charset=koi8-r'>",
        b"<metadata charset=koi8-r>",
        b"<meta content='charset=koi8-r'>",
    ],
)
def test_page_is_read_as_its_own_tag_says(before: bytes) -> None:
    """Also behind the first 1,024 bytes; what only looks like a tag does not count."""
    found = decode_page(page_of(before + b'<meta charset="windows-1251">\xe9\xfe', charset=None))
    assert found == DecodedPage(before.decode() + '<meta charset="windows-1251">йю')


def test_tag_far_behind_is_not_searched_for() -> None:
    """The search is bounded, and the reader learns that the encoding was a guess."""
    body = b"x" * DECLARED_BYTES + b"<meta charset=koi8-r>\xc1"
    found = decode_page(page_of(body, charset=None))
    assert found.text.endswith("Á")
    assert found.note == "the page names no encoding and is not UTF-8; read as windows-1252"


def test_tag_in_plain_text_is_text() -> None:
    """A page about HTML is no HTML."""
    body = "<meta charset=koi8-r> é".encode()
    assert decode_page(page_of(body, charset=None, content_type="text/plain")) == DecodedPage(body.decode())


@pytest.mark.parametrize(
    ("body", "charset", "text", "note"),
    [
        (b"ab\xff\xfec", "utf-8", "ab\ufffd\ufffdc", "2 characters could not be decoded"),
        (b"a\xe9", "iso-2022-jp", "a\ufffd", "not all of the page is iso-2022-jp: 1 character"),
        (b"x", "utf-7", "x", "the page names the encoding 'utf-7', which is unknown; read as utf-8"),
        (b"\xe9", "ignore [that]", "é", "'ignore??that?', which is unknown; read as windows-1252"),
        ("Їжак і грюн ".encode() + b"\xff", None, "Їжак і грюн \ufffd", "not all of the page is utf-8"),
        ("\ufffd".encode(), "utf-8", "\ufffd", ""),
        ("日本".encode()[:-1], None, "日\ufffd", "not all of the page"),
    ],
)
def test_what_did_not_decode_is_said(body: bytes, charset: str | None, text: str, note: str) -> None:
    """Mojibake is never shown without a word; nothing is said of a page that decoded."""
    found = decode_page(page_of(body, charset=charset))
    assert found.text == text
    assert note in found.note
    assert bool(note) == bool(found.note)


@pytest.mark.parametrize(
    "piece", [b"<meta ", b"<!--", b"<!-- -->", b"<script>", b"<meta charset=", b"<meta a='", b"<?xml "]
)
def test_hostile_page_is_looked_through_once(piece: bytes) -> None:
    """Twice as much of it is searched in about twice the steps: no search begins again."""
    page = page_of(piece * (2**21 // len(piece)), charset=None)
    assert decode_page(page).text.startswith(piece.decode())


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
