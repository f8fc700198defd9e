"""What a web page says, as Markdown or plain text; a program that can be killed.

Room: leaving out what no reader sees, and converting the rest. The program reads one request from its
standard input and answers on its standard output: ``python -I html_markdown.py``; it depends on Beautiful
Soup and markdownify alone. The tools never import it: a hostile page costs its process, not theirs.
Not here: starting and ending the program (html_process.py), bytes to characters (web_characters.py).
"""

from __future__ import annotations

import html
import json
import re
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import urljoin

from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, Tag
from bs4.element import NavigableString, PageElement, PreformattedString, Script, Stylesheet
from markdownify import ATX, MarkdownConverter

MAX_MEMORY_BYTES = 768 * 2**20
"""Address space of the program."""
MAX_DEPTH = 150
"""Elements inside each other that become Markdown; a deeper page becomes plain text."""
MAX_TITLE_CHARS = 300
MAX_LINK_CHARS = 1000
MAIN_CHARS = 200
"""Text that makes a ``main`` element the page."""
NOTED_CHARS = 200
"""Text left out that is worth a note; a page that shows less than this may be made by scripts."""
KEPT = "\ufdd0"
"""Begins each line of preformatted text until the rest is laid out; never in a page's text."""
RECURSION = 20_000
NOT_SHOWN = [
    *("script", "style", "template", "nav", "iframe", "frame", "object", "embed", "applet"),
    *("svg", "canvas", "video", "audio", "dialog", "button", "input", "select", "option", "datalist"),
    *("textarea", "head", "title", "link", "meta", "map", "progress", "meter"),
]
HIDING = re.compile(
    r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|content-visibility\s*:\s*hidden"
    r"|font-size\s*:\s*0*(?:\.0*)?(?:[a-z%]*)\s*(?:;|!|$))",
    re.IGNORECASE,
)
BLOCKS = frozenset(
    {"address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div", "dl", "dt"}
    | {"fieldset", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li"}
    | {"main", "ol", "p", "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul"}
)

ENDED_BY: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset({"li"}), frozenset({"ul", "ol", "menu"})),
    **dict.fromkeys(("dt", "dd"), (frozenset({"dt", "dd"}), frozenset({"dl"}))),
    **dict.fromkeys(("td", "th"), (frozenset({"td", "th"}), frozenset({"tr", "table"}))),
    "tr": (frozenset({"tr"}), frozenset({"table"})),
    **dict.fromkeys(
        ("p", "ul", "ol", "table", "pre", "blockquote", "div", "h1", "h2", "h3", "h4", "h5", "h6"),
        (frozenset({"p"}), frozenset({"li", "td", "th", "div", "blockquote", "body"})),
    ),
}
"""By the name of an element that begins: which open one it ends, unless one of the others is between."""
LOOKED_AT = 12
"""Open elements looked at for one whose end was left out."""


NO_SECTION = re.compile(
    r"<!\[(?!(?:cdata|if|else|endif|temp|include|ignore|rcdata)(?![-_.a-z0-9]))", re.IGNORECASE
)
"""What begins like a marked section and is not one that Python's parser knows: it would refuse the page."""
CHARACTER = re.compile(r"&#([0-9]{8,});?")
"""Numbers with more digits than a character's has; Python refuses to read thousands of them."""
BARE = re.compile(
    r"<!--.*?(?:-->|$)|<(script|style|noscript|template|svg|textarea|title|iframe)\b.*?(?:</\1\s*>|$)"
    r"|<[a-z/!?][^>]*(?:>|$)",
    re.IGNORECASE | re.DOTALL,
)
"""What is not text of a page that can't be parsed."""


class LenientSoup(BeautifulSoup):
    """A page in which the end tags that HTML lets writers leave out are put in.

    Source: the WHATWG HTML Standard, optional tags; its commonest cases.
    """

    def handle_starttag(self, name: str, *args: Any, **kwargs: Any) -> Tag | None:
        """End what this element ends, then begin it."""
        ended, until = ENDED_BY.get(name, ((), ()))
        if ended:
            # Only the nearest ones: a page with thousands of open elements would cost their number with each
            # tag.
            for element in reversed(self.tagStack[-LOOKED_AT:]):
                if element.name in until:
                    break
                if element.name in ended:
                    self.handle_endtag(element.name)
                    break
        return super().handle_starttag(name, *args, **kwargs)


def convert_page(
    page: str, *, mode: Literal["markdown", "text"], base: str, max_chars: int
) -> dict[str, str | bool | list[str]]:
    """Return ``{title, text, more, notes}``: what the page says, whether that went on, what was left out.

    Args:
        page: Its HTML.
        mode: Plain text is also what a page becomes that is too deep or too odd for Markdown.
        base: Address that relative links start from.
        max_chars: Longest text.

    Contract: total; a page that can't be parsed becomes its text without tags.
    """
    # Before parsing, because Python's parser gives up a whole page for one such place.
    page = repair_page(page)
    try:
        title, text, notes = _read(page, mode, base)
    except Exception:  # noqa: BLE001 - three libraries may raise anything for what nobody thought of
        title, text, notes = "", remove_tags(page), []
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t\xa0]+$", "", text, flags=re.MULTILINE)).strip()
    text = re.sub(rf"^[ \t]*{KEPT}$", "", text, flags=re.MULTILINE).replace(KEPT, "").rstrip()
    return {"title": title, "text": text[:max_chars], "more": len(text) > max_chars, "notes": notes}


def repair_page(page: str) -> str:
    """Return a page without what the parser refuses a whole page for; it is shown as what it is."""
    page = page.encode("utf-8", "replace").decode("utf-8").replace(KEPT, "")
    # The standard ends a comment also so; Python's parser does not know it.
    page = page.replace("<!-->", "<!-- -->").replace("<!--->", "<!-- -->").replace("--!>", "-->")
    return NO_SECTION.sub("&lt;![", CHARACTER.sub(_shorten_reference, page))


def _shorten_reference(character: re.Match[str]) -> str:
    digits = character[1].lstrip("0")
    return f"&#{digits or '0'};" if len(digits) < 8 else "\N{REPLACEMENT CHARACTER}"


def remove_tags(page: str) -> str:
    """Return the text of a page that can't be parsed: what is left without tags, one line for each."""
    lines = (" ".join(line.split()) for line in html.unescape(BARE.sub("\n", page)).split("\n"))
    return "\n".join(line for line in lines if line)


class PageMarkdown(MarkdownConverter):
    """Converts to Markdown and marks the lines of preformatted text."""

    def convert_pre(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        """Return a code block without blank lines at its ends."""
        bare = text.lstrip(" \n")
        if not bare:
            return ""
        indent = text[: len(text) - len(bare)].rpartition("\n")[2]
        kept = (KEPT + indent + bare.rstrip(" \n")).replace("\n", f"\n{KEPT}")
        return f"\n\n```\n{kept}\n```\n\n"


def _read(page: str, mode: Literal["markdown", "text"], base: str) -> tuple[str, str, list[str]]:
    """Return title and text of a page, and notes on what was left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        soup = LenientSoup(page, "html.parser")
    title = _find_title(soup)
    base = _find_base(soup, base)
    has_scripts = soup.find(_is_program) is not None
    notes = prune(soup)
    if has_scripts and measure_shown_size(soup) < NOTED_CHARS:
        notes.append("the page's text may be made by scripts, which are not run")
    root = _find_main(soup)
    if mode == "text" or _is_deep(root):
        _mark_levels(root)
        return title, extract_element_text(root), notes
    _mend_links(root, base)
    _mark_levels(root)
    for cell in root.find_all(["td", "th"]):
        for text in cell.find_all(string=lambda text: "|" in text):
            text.replace_with(NavigableString(text.replace("|", "\\|")))
    converter = PageMarkdown(heading_style=ATX, bullets="-", escape_underscores=False)
    try:
        return title, str(converter.convert_soup(root)), notes
    except Exception:  # noqa: BLE001 - values that are not numbers, in attributes; and what memory has no room for
        return title, extract_element_text(root), notes


def prune(soup: Tag) -> list[str]:
    """Take out what a reader of the page does not see, and what only leads around the site.

    Returns:
        Notes on text that was left out and may matter.
    """
    # Comments and declarations first: they are no text of the page, and would be counted as such below.
    for text in soup.find_all(string=lambda text: isinstance(text, PreformattedString)):
        text.extract()
    for element in soup.find_all("template", attrs={"shadowrootmode": True}):
        element.name = "div"  # it is shown in place of what is around it
    not_shown = soup.find_all(_is_not_shown)
    templates = [element for element in not_shown if element.name == "template"]
    hidden = [
        element for element in not_shown if element.name not in NOT_SHOWN and not _is_navigation(element)
    ]
    # By identity: elements compare by their content, and two empty ones are equal.
    last = {id(element) for element in (*templates, *hidden)}
    for element in not_shown:
        if id(element) not in last:
            element.extract()
    left_out = [
        (_take_out_elements(soup, templates), "templates, which scripts fill in,"),
        (_take_out_elements(soup, hidden), "hidden elements"),
    ]
    shown = measure_shown_size(soup)
    notes = [
        f"{chars} characters in {where} were left out"
        for chars, where in left_out
        if chars and chars >= min(NOTED_CHARS, shown)
    ]
    whole = len(soup.get_text())
    # After the hidden parts are gone, because the share of the form is judged by what is shown.
    for form in soup.find_all("form"):
        # Some sites put everything into one form.
        if len(form.get_text()) * 2 > whole:
            form.unwrap()
        else:
            form.extract()
    return notes


def _take_out_elements(soup: Tag, elements: list[Tag]) -> int:
    """Take out elements and return how many characters they hold."""
    if not elements:
        return 0
    before = measure_shown_size(soup)
    for element in elements:
        element.extract()
    return before - measure_shown_size(soup)


def measure_shown_size(soup: Tag) -> int:
    """Return how many characters of text there are, without space around each piece and without programs."""
    return sum(
        len(text.strip()) for text in soup.find_all(string=True) if not isinstance(text, (Script, Stylesheet))
    )


def extract_element_text(root: Tag) -> str:
    """Return the text beneath an element; blocks stand on lines of their own."""
    parts: list[str] = []
    preformatted = 0
    for node, begins in _walk(root):
        if isinstance(node, Tag):
            if node.name in BLOCKS:
                parts.append("\n")
            elif node.name in {"td", "th"} and not begins:
                parts.append("\t")
            if node.name == "pre":
                preformatted += 1 if begins else -1
                parts.append(KEPT * begins)
        elif isinstance(node, NavigableString):
            parts.append(node.replace("\n", f"\n{KEPT}") if preformatted else re.sub(r"\s+", " ", node))
    lines: list[str] = []
    for line in "".join(parts).split("\n"):
        if not line.startswith(KEPT):
            lines.append(line.strip(" "))
        elif line.strip(f"{KEPT} ") or (lines and lines[-1].startswith(KEPT)):
            lines.append(line)
    return "\n".join(line for line in lines if line.strip())


def _walk(root: Tag) -> Iterator[tuple[PageElement, bool]]:
    """Yield every node when it begins, and every element again when it ends; never recursing."""
    waiting: list[tuple[PageElement, bool]] = [(root, True)]
    while waiting:
        node, begins = waiting.pop()
        yield node, begins
        if isinstance(node, Tag) and begins:
            waiting.append((node, False))
            waiting += [(child, True) for child in reversed(node.contents)]


def _is_deep(root: Tag) -> bool:
    depth = 0
    for node, begins in _walk(root):
        if isinstance(node, Tag):
            depth += 1 if begins else -1
            if depth > MAX_DEPTH:
                return True
    return False


def _is_not_shown(element: Tag) -> bool:
    if element.name in NOT_SHOWN:
        return True
    attributes = element.attrs
    if not attributes:
        return False
    return (
        "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or _is_navigation(element)
        or bool(HIDING.search(str(attributes.get("style", ""))[:2000]))
    )


def _is_navigation(element: Tag) -> bool:
    """Whether an element only leads around the site."""
    return element.get("role") in {"navigation", "search", "dialog"}


def _is_program(element: Tag) -> bool:
    """Whether an element is a script that a browser runs, and not data."""
    return element.name == "script" and "json" not in str(element.get("type", "")).lower()


def _find_title(soup: BeautifulSoup) -> str:
    found = soup.find("title")
    return " ".join(found.get_text().split())[:MAX_TITLE_CHARS] if found is not None else ""


def _find_base(soup: BeautifulSoup, base: str) -> str:
    found = soup.find("base", href=True)
    return _resolve_link(base, str(found["href"])) or base if isinstance(found, Tag) else base


def _find_main(soup: BeautifulSoup) -> Tag:
    found = soup.find_all(lambda element: element.name == "main" or element.get("role") == "main")
    if len(found) == 1 and len(found[0].get_text(strip=True)) >= MAIN_CHARS:
        return found[0]
    return soup


def _mend_links(root: Tag, base: str) -> None:
    for link in root.find_all("a"):
        target = _resolve_link(base, str(link["href"])) if link.has_attr("href") else ""
        if target and link.get_text(strip=True):
            link.attrs = {"href": target}
        else:
            link.unwrap()
    for image in root.find_all("img"):
        words = " ".join(str(image.get("alt", "")).split())
        # The texts of neighbours would run together.
        before, after = image.previous_sibling, image.next_sibling
        left = " " if isinstance(before, NavigableString) and not before[-1:].isspace() else ""
        right = " " if isinstance(after, NavigableString) and not after[:1].isspace() else ""
        image.replace_with(NavigableString(f"{left}{words}{right}" if words else ""))


def _mark_levels(root: Tag) -> None:
    """Keep what superscripts and subscripts mean: ``10^6`` is not 106."""
    for element in root.find_all(["sup", "sub"]):
        text = " ".join(element.get_text().split())
        mark = "^" if element.name == "sup" else "_"
        if not text or element.find(["a", "sup", "sub"]) is not None:
            continue  # a footnote's mark is a link
        element.replace_with(NavigableString(f"{mark}{text}" if text.isalnum() else f"{mark}({text})"))


def _resolve_link(base: str, reference: str) -> str:
    """Return where a reference leads; nothing where that is not a page."""
    if len(reference) > MAX_LINK_CHARS or reference.startswith("#"):
        return ""
    try:
        target = urljoin(base, reference.strip())
    except ValueError:
        return ""
    return target if target.startswith(("http://", "https://", "mailto:")) else ""


def main() -> None:
    """Answer one request: a line of JSON ``{mode, base, max_chars, limit_s}``, then the page in UTF-8."""
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    limit_s = order.pop("limit_s")
    # Unhandled, the alarm ends this process, also when whoever started it is gone.
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    with suppress(OSError, ValueError):  # a lower limit is in force already
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    sys.setrecursionlimit(RECURSION)
    answer = convert_page(sys.stdin.buffer.read().decode("utf-8", "replace"), **order)
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
