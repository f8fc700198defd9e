"""What a web page is, and its bytes as characters.

Source: the WHATWG Encoding Standard (names of encodings, their decoders) and the WHATWG HTML Standard (the
order of evidence: byte-order mark, header, the page itself). Names that Python knows and the standard does
not are ignored, since some of them decode into anything at all.
Not here: fetching the page and wording what a model sees (web.py), HTML to Markdown (html_markdown.py).
"""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal, TypeAlias

import webencodings

from sessiontree.contracts.handles.ports import Page
from sessiontree.contracts.values.quick_dataclass import dataclass

Sort: TypeAlias = Literal["html", "json", "text", "binary"]

HEAD_BYTES: Final = 1024
"""Where a binary page shows itself."""
DECLARED_BYTES: Final = 256 * 1024
"""Where a page may name its encoding. The standard looks at the first 1,024 bytes, and then at every ``meta``
that is met later; scripts and styles of a long head may come first."""
SHOWN_LABEL_CHARS: Final = 40
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16le"),
    (codecs.BOM_UTF16_BE, "utf-16be"),
)
_DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9_.:-]{1,40})""")
_TAG = re.compile(
    rb"""<(?:(?P<comment>!--)|(?P<raw>script|style|title|textarea|noscript|template|xmp|iframe)(?=[\s/>])"""
    rb"""|(?P<meta>meta)(?=[\s/]))""",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    rb"""[\s/]*(?P<name>[^\s/>=][^\s/>=]*)(?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s>"']*)))?"""
)
_IN_CONTENT = re.compile(rb"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)
_MEDIA_TYPE = re.compile(rb"\s*[a-z]+/[^;]*;", re.IGNORECASE)
_META_BYTES: Final = 2048
_META_ATTRIBUTES: Final = 30
_LOOKS_LIKE_HTML = re.compile(
    rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_TEXTUAL: Final = frozenset(
    f"application/{name}"
    for name in (
        *("xml", "xml-dtd", "javascript", "ecmascript", "x-javascript", "typescript", "yaml", "x-yaml"),
        *("toml", "x-sh", "x-ndjson", "jsonl", "json-seq", "graphql", "sql", "x-tex", "x-latex", "rtf"),
        "x-httpd-php",
    )
)


def page_kind(page: Page) -> Sort:
    """Return what a page is, by its type, and by its first bytes where it has none."""
    kind, head = page.content_type, page.body[:HEAD_BYTES]
    wide = (_detect_mark(head) or _look_up_encoding(page.charset) or "").startswith("utf-16")
    # Before the declared type: a server that calls an archive text must not make a model read it.
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


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """A page's characters."""

    text: str
    note: str = ""
    """What the reader should know of them: characters that did not decode, a name that is not known."""


def decode_page(page: Page) -> DecodedPage:
    """Return a page's characters; bytes that fit none become U+FFFD, and the note counts them.

    Its byte-order mark decides, else the header, else what the page says itself, else UTF-8 where that fits,
    else Windows-1252.
    """
    name = _detect_mark(page.body) or _look_up_encoding(page.charset)
    label = page.charset
    notes: list[str] = []
    if name is None:
        inside = _label_inside(page)
        name, label = _find_named_encoding(inside), label or inside
        if name is None:
            name = _guess_encoding(page)
            if label:
                notes.append(
                    f"the page names the encoding {_quote_label(label)}, which is unknown; read as {name}"
                )
            elif name != "utf-8":
                notes.append(f"the page names no encoding and is not UTF-8; read as {name}")
    if name == "replacement":
        return DecodedPage(
            "\N{REPLACEMENT CHARACTER}",
            f"the page names the encoding {_quote_label(label)}, which is not decoded on the web",
        )
    # The standard decodes GBK with the decoder of its superset.
    codec = webencodings.lookup("gb18030" if name == "gbk" else name).codec_info
    text, _ = codec.decode(page.body, "replace")
    missed = 0
    try:
        # A body that was cut may end inside a character: that is not worth a note.
        codec.incrementaldecoder("strict").decode(page.body, not page.truncated)
    except UnicodeDecodeError:
        missed = text.count("\N{REPLACEMENT CHARACTER}")
    if missed:
        count = f"{missed:,} character{'s' * (missed != 1)}"
        notes.append(f"not all of the page is {name}: {count} could not be decoded, shown as \ufffd")
    return DecodedPage(text.removeprefix("\ufeff"), "; ".join(notes))


def _detect_mark(head: bytes) -> str | None:
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def _look_up_encoding(label: str | None) -> str | None:
    """Return the standard's name of the encoding that a label stands for, or None."""
    # The library strips and lowers what the standard does; a label that is not ASCII is nobody's.
    found = webencodings.lookup(label) if label and label.isascii() else None
    return None if found is None else str(found.name)


def _find_named_encoding(label: str | None) -> str | None:
    """Return the encoding that a page names itself; what it could not have been read in means another."""
    name = _look_up_encoding(label)
    # A page whose declaration could be read as ASCII is not UTF-16, whatever it says.
    if name in {"utf-16le", "utf-16be"}:
        return "utf-8"
    return "windows-1252" if name == "x-user-defined" else name


def _quote_label(label: str | None) -> str:
    # The note is outside the marks around the page, and the page chooses the label.
    return repr(re.sub(r"[^A-Za-z0-9._:-]", "?", label or "")[:SHOWN_LABEL_CHARS])


def _label_inside(page: Page) -> str | None:
    """Return the first label of an encoding within a page, known ones before unknown ones."""
    head = page.body[:HEAD_BYTES]
    sort = page_kind(page)
    if sort in {"html", "text"} and (declared := _DECLARED.match(head.lstrip())) is not None:
        return declared[1].decode("ascii")
    return _label_of_meta(page.body[:DECLARED_BYTES]) if sort == "html" else None


def _label_of_meta(page: bytes) -> str | None:
    """Return what the first ``meta`` that names an encoding says; not one in a comment, script or title.

    Linear: every search begins where the last one ended, and the first one without a result ends it all.
    """
    at, unknown = 0, None
    while (found := _TAG.search(page, at)) is not None:
        at = found.end()
        if found["comment"]:
            # The dashes of `<!-->` begin the comment and end it.
            end = page.find(b"-->", at - 2)
        elif found["raw"]:
            closing = re.compile(rb"</" + found["raw"] + rb"(?=[\s/>])", re.IGNORECASE).search(page, at)
            end = -1 if closing is None else closing.start()
        else:
            label, at = _find_label(page, at)
            if label is not None and _look_up_encoding(label) is not None:
                return label
            unknown = unknown or label
            continue
        if end < 0:
            break
        at = end
    return unknown


def _find_label(page: bytes, at: int) -> tuple[str | None, int]:
    """Return the label in the attributes of one ``meta``, and where they end."""
    values: dict[bytes, bytes] = {}
    end = at + _META_BYTES
    for _ in range(_META_ATTRIBUTES):
        found = _ATTRIBUTE.match(page, at, end)
        if found is None:
            break
        at = found.end()
        value = found["double"] or found["single"] or found["bare"] or b""
        values.setdefault(found["name"].lower(), value)
    label = values.get(b"charset")
    content = values.get(b"content", b"")
    of_type = values.get(b"http-equiv", b"").strip().lower() == b"content-type"
    # Pages leave `http-equiv` out; nothing else begins with a media type.
    if label is None and (of_type or (b"name" not in values and _MEDIA_TYPE.match(content))):
        inside = _IN_CONTENT.search(content)
        label = (inside[1] or inside[2] or inside[3]) if inside else None
    return label.decode("latin-1") if label else None, at


def _guess_encoding(page: Page) -> str:
    """Return the encoding of a page that names none.

    UTF-8 also where some bytes do not fit and more characters do: an old encoding hardly ever looks so.
    """
    text = page.body.decode("utf-8", "replace")
    # A body that was cut may end inside a character.
    missed = text.count("\N{REPLACEMENT CHARACTER}", 0, -1 if page.truncated else None)
    wide = sum(map(len, re.findall(r"[^\x00-\x7f\N{REPLACEMENT CHARACTER}]+", text))) if missed else 0
    return "utf-8" if missed <= wide else "windows-1252"
