"""REL-L46, REL-L47: one form of an address, used to judge, to connect and to send."""

from __future__ import annotations

from ipaddress import IPv4Address
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import PermissionDenied, ToolError, ValidationError
from sessiontree.web.address import MAX_URL_CHARS, join_address, parse_address

LOOPBACK = [
    *(
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0X7F.0x0.0.0x1",
        "017700000001",
    ),
    *("0177.0.0.1", "0177.1", "127.0.0.1.", "１２７.０.０.１", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1"),
    *("①②⑦.0.0.1", "0x7F.0.0.0001", "00000177.0.0.1", "127.0.0x0.1"),
]
SAME = [
    ("http://Example.COM", "http://example.com/"),
    ("HTTP://example.com.:80/", "http://example.com/"),
    ("https://example.com:0443", "https://example.com/"),
    ("http://example.com:8080/a", "http://example.com:8080/a"),
    ("http://ＥＸＡＭＰＬＥ.com/", "http://example.com/"),
    ("http://exam\u00adple.com/", "http://example.com/"),
    ("http://bücher.de/ü?ö=ä b#frag", "http://xn--bcher-kva.de/%C3%BC?%C3%B6=%C3%A4%20b"),
    ("http://例え。jp/", "http://xn--r8jz45g.jp/"),
    ("http://[::FFFF:1.2.3.4]/", "http://[::ffff:102:304]/"),
    ("http://[2001:0db8:0:0:0:0:0:1]:80/", "http://[2001:db8::1]/"),
    ("  http://a.b/%41%zz  ", "http://a.b/%41%zz"),
    ("http://a.b?x", "http://a.b/?x"),
]
DENIED = [
    *("file:///etc/passwd", "gopher://a.b/", "data:text/html,x", "ftp://a.b/", "javascript:alert(1)"),
    *("unix:///run/x.sock", "ws://a.b/", "jar:http://a.b!/", "about:blank"),
    *("http://user@a.b/", "http://user:pass@a.b/", "http://@a.b/", "http://a.b@127.0.0.1/"),
    *("http://[fe80::1%25eth0]/", "http://[::1%lo]/", "http://a.b:80@127.0.0.1/"),
]
INVALID = [
    *(
        "",
        "a.b/c",
        "//a.b/",
        "http:a.b",
        "http:/a.b",
        "http:///path",
        "http://",
        "http://:80/",
        "http://a.b:x/",
    ),
    *("http://a.b:0/", "http://a.b:65536/", "http://a.b:-1/", "http://a..b/", "http://-a.b/", "http://a.b-/"),
    *("http://a.b\\@127.0.0.1/", "http://a\tb/", "http://a.b/\r\nHost: c", "http://a.b/\0", "http://a b/"),
    *("http://%31%32%37.0.0.1/", "http://[::1/", "http://[::1]x/", "http://[1.2.3.4]/", "http://1.2.3.4.5/"),
    *("http://256.1.1.1/", "http://0x1ffffffff/", "http://08.1.1.1/", "http://1.2.3.09/", "http://a.1/"),
    *("http://a.0x7f/", "http://" + "a" * 64 + ".b/", "http://" + "a." * 127 + "b/", "http://\u200d.b/"),
    *("http://a.b/" + "x" * MAX_URL_CHARS, "http://xn--a\u0300.b\ufffd/", "http://a.b:８０/", "http://a]b/"),
]


@pytest.mark.covers("REL-L42")
@pytest.mark.parametrize("host", LOOPBACK)
def test_old_spelling_is_the_address_it_means(host: str) -> None:
    """Octal, hex, one number, short forms, a last dot, wide digits, other dots: all of them are 127.0.0.1."""
    assert parse_address(f"http://{host}/").host == "127.0.0.1"


@pytest.mark.covers("REL-L46")
@pytest.mark.parametrize(("text", "form"), SAME)
def test_address_has_one_form(text: str, form: str) -> None:
    """Case, dots, default ports, IDNA, escapes and fragments are settled once."""
    assert str(parse_address(text)) == form
    assert parse_address(form) == parse_address(text)


@pytest.mark.covers("REL-L47")
@pytest.mark.parametrize("text", DENIED)
def test_what_is_never_fetched_is_denied(text: str) -> None:
    """REL-L47: other schemes, credentials, zones."""
    with pytest.raises(PermissionDenied):
        parse_address(text)


@pytest.mark.parametrize("text", INVALID)
def test_what_is_read_differently_by_different_programs_is_no_address(text: str) -> None:
    """Nothing is guessed: no port, host or control character that one program takes and another drops."""
    with pytest.raises(ValidationError) as refusal:
        parse_address(text)
    assert refusal.value.field == "/url"


@given(st.integers(0, 2**32 - 1), st.data())
def test_every_spelling_of_every_ipv4_address_is_that_address(number: int, data: st.DataObject) -> None:
    """Any mixture of bases and short forms comes to the same four numbers."""
    count = data.draw(st.integers(1, 4))
    parts = [number >> 24 - 8 * at & 0xFF for at in range(count - 1)]
    parts.append(number & (1 << 8 * (5 - count)) - 1)
    spell = [
        lambda part: str(part),
        lambda part: hex(part),
        lambda part: f"0{part:o}",
        lambda part: f"0X{part:X}",
    ]
    host = ".".join(data.draw(st.sampled_from(spell))(part) for part in parts)
    assert parse_address(f"http://{host}/").ip == IPv4Address(number)


@given(st.text(alphabet=st.sampled_from("htps:/.@[]%\\#?0127xaé。１ \t-"), max_size=30))
def test_what_passes_is_read_the_same_by_others(tail: str) -> None:
    """Whatever is accepted, another parser finds the same host and port in the form that is used."""
    try:
        address = parse_address("http://" + tail)
    except ToolError:
        return
    other = urlsplit(str(address))
    assert other.hostname == address.host
    assert (other.port or 80) == address.port
    assert other.username is None
    assert str(address).isascii()
    assert not set(str(address)) & set(" \\\t\r\n")
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("reference", "form"),
    [
        ("/x", "https://a.b/x"),
        ("//c.d/x", "https://c.d/x"),
        ("?q", "https://a.b/p/?q"),
        ("../y", "https://a.b/y"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("#f", "https://a.b/p/"),
    ],
)
def test_reference_is_joined(reference: str, form: str) -> None:
    """A redirect may be relative; what it comes to is in the one form again."""
    assert str(join_address(parse_address("https://a.b/p/"), reference)) == form


@pytest.mark.parametrize("reference", ["//u@c.d/", "file:///x", "javascript:x", "gopher://x/"])
def test_reference_to_what_is_never_fetched_is_denied(reference: str) -> None:
    """REL-L46: the second hop is no other than the first."""
    with pytest.raises(PermissionDenied):
        join_address(parse_address("https://a.b/"), reference)


@pytest.mark.parametrize("reference", ["http://[", "/\r\nX: y", "x" * 5000, "\\\\c.d\\x"])
def test_reference_that_is_none_is_refused(reference: str) -> None:
    """Control characters, backslashes, too long ones."""
    with pytest.raises(ValidationError):
        join_address(parse_address("https://a.b/"), reference)
