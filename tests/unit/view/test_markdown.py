"""Markdown in pages: whatever a model writes, a fragment has a few tags and no attribute."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.view.markdown import MAX_CHARS, TAGS, render_markdown

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:x)",
    "[x](https://a.example/?q=1 \"title' onmouseover='x\")",
    "![x](https://a.example/pixel.png)",
    '![x"onerror="alert(1)](x)',
    "<https://a.example/>",
    "[x]: https://a.example 'y'\n\n[x]",
    "<style>*{background:url(https://a.example)}</style>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<form action=https://a.example><button>ok</button></form>",
    "<meta http-equiv=refresh content='0;url=https://a.example'>",
    "<base href=https://a.example>",
    "<link rel=stylesheet href=https://a.example>",
    "<div style='position:fixed;inset:0'>x</div>",
    "<p id=approve class=button>x</p>",
    '```js" onload="alert(1)\n</code></pre><script>alert(1)</script>\n```',
    "| a | b |\n|:-:|--|\n| <b>x</b> | `<i>` |",
    "<!--><img src=x onerror=alert(1)-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#x3c;script&#x3e;",
    "\u202egnp.exe <b\u0000>x",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<template><script>alert(1)</script></template>",
    "<x-session-tree source=1></x-session-tree>",
]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, attrs))


def is_harmless(fragment: str) -> None:
    """A fragment has none but the known tags, without attributes, and nothing that a page would run."""
    parser = _Tags()
    parser.feed(fragment)
    assert {tag for tag, _ in parser.found} <= TAGS
    assert all(not attributes for _, attributes in parser.found)
    assert not re.search(r"<!|<\?|<(?![a-z/])", fragment)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_is_text(text: str) -> None:
    """Known attacks come out as text."""
    fragment = render_markdown(text)
    assert fragment is not None
    is_harmless(fragment)


@given(
    st.text(st.characters(codec="utf-8"), max_size=200) | st.lists(st.sampled_from(HOSTILE)).map("\n".join)
)
def test_any_markdown_is_harmless(text: str) -> None:
    """Whatever is written."""
    fragment = render_markdown(text)
    assert fragment is not None
    is_harmless(fragment)


def test_markdown_is_rendered() -> None:
    """Headings, lists, tables and code are shown as such; a link is its words and its address."""
    fragment = render_markdown("# T\n\n- *a* `b`\n\n[c](https://d.example/?e=1&f) ~~g~~\n\n|h|\n|-|\n|i|")
    assert fragment is not None
    assert "<h1>T</h1>" in fragment
    assert "<li><em>a</em> <code>b</code></li>" in fragment
    assert "c (https://d.example/?e=1&amp;f)" in fragment.replace("&#x2F;", "/").replace("&#47;", "/")
    assert "<td>i</td>" in fragment


def test_text_that_is_too_long_is_not_rendered() -> None:
    """The parser sees bounded texts alone."""
    assert render_markdown("x" * (MAX_CHARS + 1)) is None
