"""What sort of thing a web page is, and its bytes as characters.

Sources: the WHATWG Encoding Standard for names and for the order of evidence (mark, header, page itself);
names that Python knows and it does not are not followed, since some decode into anything at all.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.ports import Page

Sort: TypeAlias = Literal["html", "json", "text", "binary"]

HEAD_BYTES: Final = 1024
"""Where a page may name its encoding, and where a binary one shows itself."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NAMED = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE)
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9_.:-]{1,40})""")
_LOOKS_LIKE_HTML = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_AS_BROWSERS_READ: Final = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "tis-620": "cp874",
    "utf-16": "utf-16-le",
}
_KNOWN: Final = frozenset(
    {"utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5", "big5hkscs", "cp932", "euc_jp", "iso2022_jp"}
    | {"cp949", "cp866", "cp874", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic"}
    | {f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)}
    | {f"cp125{page}" for page in range(9)}
)
_TEXTUAL: Final = frozenset(
    f"application/{name}"
    for name in (
        *(
            "xml",
            "xml-dtd",
            "javascript",
            "ecmascript",
            "x-javascript",
            "typescript",
            "yaml",
            "x-yaml",
            "toml",
        ),
        *(
            "x-sh",
            "x-ndjson",
            "jsonl",
            "json-seq",
            "graphql",
            "sql",
            "x-tex",
            "x-latex",
            "rtf",
            "x-httpd-php",
        ),
    )
)


def sort_of(page: Page) -> Sort:
    """Return what a page is, by its type, and by its first bytes where it has none."""
    kind, head = page.content_type, page.body[:HEAD_BYTES]
    wide = _marked(head) in {"utf-16-le", "utf-16-be"} or (page.charset or "").startswith("utf-16")
    if b"\0" in head and not wide:
        return "binary"
    if kind in {"text/html", "application/xhtml+xml"}:
        return "html"
    if kind == "application/json" or kind.endswith("+json"):
        return "json"
    if kind.startswith("text/") or kind.endswith("+xml") or kind in _TEXTUAL:
        return "text"
    if kind:
        return "binary"
    return "html" if _LOOKS_LIKE_HTML.match(head) else "text"


def decoded(page: Page) -> str:
    """Return a page's characters; bytes that are none become U+FFFD.

    Its byte-order mark decides, else the header, else what the page says itself, else UTF-8 where that fits,
    else Windows-1252.
    """
    head = page.body[:HEAD_BYTES]
    marked = _marked(head)
    if marked is not None:
        return page.body.decode(marked, "replace").removeprefix("\ufeff")
    named = _NAMED.search(head) or _DECLARED.search(head)
    inside = _known(named[1].decode("ascii")) if named else None
    if inside in {"utf-16-le", "utf-16-be"}:
        inside = "utf-8"  # it could not have been read so
    encoding = _known(page.charset) or inside or _fitting(page)
    return page.body.decode(encoding, "replace")


def _marked(head: bytes) -> str | None:
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def _known(name: str | None) -> str | None:
    """Return Python's name of an encoding of the web, or None."""
    if not name:
        return None
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
    found = _AS_BROWSERS_READ.get(found, found)
    return found if found in _KNOWN else None


def _fitting(page: Page) -> str:
    # A body that was cut may end inside a character.
    whole = page.body[:-4] if page.truncated else page.body
    try:
        codecs.getincrementaldecoder("utf-8")().decode(whole, final=not page.truncated)
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"
