"""Decoding: from the bytes of a file to its text, or to the finding that it is no text."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_HEAD_BYTES = 8_000
_MAX_CONTROL_SHARE = 0.03
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\v\f\r\x1b\x08")
# an editor's or PEP 263's declaration in one of the first two lines
_COOKIE = re.compile(rb"(?:[^\n]{0,500}\n)?[ \t\f]*[^\n]{0,80}?coding[:=][ \t]*([-\w.]{1,40})")
_DECLARABLE = re.compile(r"(?:latin|iso|cp|windows|koi8|euc|shift|sjis|gb|big5|ascii|us-ascii)")


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text of a file."""

    text: str
    """Every line end is one line feed; no byte order mark."""
    problem: str = ""
    """What could not be decoded as it should."""


def decode(data: bytes, *, cut: bool = False) -> Decoded | None:
    """Return the text of a file's bytes, None when they are no text.

    Order: byte order mark, UTF-8, the encoding an early line declares, Latin-1. Bytes without a mark that
    hold a NUL, or many control characters and no UTF-8, are no text.

    Args:
        data: The file's bytes or their beginning.
        cut: Whether more follows; then half a character at the end is dropped.

    Source: PEP 263 for the declaration.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _marked(data[len(mark) :], encoding, cut=cut)
    if b"\0" in data:
        return None
    try:
        return Decoded(_one_line_end(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        bad = error.start
        if cut and bad >= len(data) - 3 and error.reason == "unexpected end of data":
            return Decoded(_one_line_end(data[:bad].decode("utf-8")))
    head = data[:_HEAD_BYTES]
    if len(head) - len(head.translate(None, _CONTROLS)) > _MAX_CONTROL_SHARE * len(head):
        return None
    declared = _declared(data)
    if declared is not None:
        return Decoded(_one_line_end(declared))
    return Decoded(_one_line_end(data.decode("latin-1")), f"no UTF-8 from byte {bad:,}; read as Latin-1")


def _marked(data: bytes, encoding: str, *, cut: bool) -> Decoded:
    """Decode after a byte order mark; a cut one loses up to three bytes of half a character."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    text = decoder.decode(data, final=not cut)
    problem = f"holds bytes that are no {encoding.upper()}" if "\ufffd" in text else ""
    return Decoded(_one_line_end(text), problem)


def _declared(data: bytes) -> str | None:
    cookie = _COOKIE.match(data)
    if cookie is None:
        return None
    name = cookie[1].decode("ascii", "replace").lower().replace("_", "-")
    if _DECLARABLE.match(name) is None:
        return None
    try:
        return data.decode(name)
    except (LookupError, ValueError):
        return None


def _one_line_end(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
