"""What a web page says: the conversion, and the process it runs in."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError
from sessiontree_tools.files import own_process
from sessiontree_tools.web import html_markdown, html_process
from tests.example_fixtures import examples

Leftovers = Callable[[], AbstractContextManager[None]]
BASE = "https://site.example/dir/page"
SHOWN = "the words that are shown"


def markdown(html: str) -> str:
    """Return a page's Markdown."""
    return str(html_markdown.convert_page(html, mode="markdown", base=BASE, max_chars=100_000)["text"])


def text(html: str) -> str:
    """Return a page's plain text."""
    return str(html_markdown.convert_page(html, mode="text", base=BASE, max_chars=100_000)["text"])


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<h1>A</h1><h3>B</h3>", "# A\n\n### B"),
        ("<p>a <b>b</b> <i>c</i> <code>d</code></p>", "a **b** *c* `d`"),
        ("<ul><li>a<li>b</ul><ol><li>c</ol>", "- a\n- b\n\n1. c"),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ('<a href="x">rel</a>', "[rel](https://site.example/dir/x)"),
        ('<a href="//c.d/e?f=1&amp;g#h">abs</a>', "[abs](https://c.d/e?f=1&g#h)"),
        ('<base href="https://other.example/"><a href="x">rel</a>', "[rel](https://other.example/x)"),
        ('<a href="javascript:alert(1)">no</a> <a href="data:text/html,x">no</a>', "no no"),
        ('<a href="#part">here</a>', "here"),
        ('<a href="https://[bad/">bad</a>', "bad"),
        ('<p>x <img src="http://t.example/pixel?id=1" alt="a  cat"> y</p>', "x a cat y"),
        ("<blockquote>said</blockquote>", "> said"),
        ("<p>a<p>b<ul><li>c<li>d<ul><li>e</ul><li>f</ul>", "a\n\nb\n\n- c\n- d\n  - e\n- f"),
        ("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "a\n:   b\n\nc\n:   d"),
        ("a_b_c", "a_b_c"),
        ("10<sup>6</sup> x<sup>2</sup> H<sub>2</sub>O x<sup>-1</sup>", "10^6 x^2 H_2O x^(-1)"),
        ("<table><tr><th>a|b<tr><td>1|2</table>", "| a\\|b |\n| --- |\n| 1\\|2 |"),
        ('<a name="x">text</a>', "text"),
        ('<p><img alt="one"><img alt="two"></p>', "one two"),
        ("<noscript><p>plain</p></noscript>", "plain"),
        ("<div><template shadowrootmode=open><p>shadow</p></template></div>", "shadow"),
        ('<p style="opacity:0">animated in</p>', "animated in"),
        ("a<!-->b<!-- x --!>c<!--->d<!-- y -->e", "abcde"),
    ],
)
def test_markdown_keeps_what_a_page_says(html: str, wanted: str) -> None:
    """Headings, lists, tables, code and links; relative links from the page's own address."""
    assert markdown(html) == wanted


HIDDEN = [
    "<script>{}</script>",
    "<style>{}</style>",
    "<template>{}</template>",
    "<nav>{}</nav>",
    "<div role=navigation>{}</div>",
    "<form>{}<input></form>",
    "<button>{}</button>",
    "<select><option>{}</select>",
    "<textarea>{}</textarea>",
    "<svg><text>{}</text></svg>",
    "<iframe>{}</iframe>",
    "<!-- {} -->",
    "<![CDATA[{}]]>",
    "<?php {} ?>",
    "<div hidden>{}</div>",
    "<div hidden=until-found><p>{}</div>",
    "<div aria-hidden=true>{}</div>",
    '<div style="display:none">{}</div>',
    '<div style="color:red; DISPLAY : NONE !important">{}</div>',
    '<p style="visibility:hidden">{}</p>',
    '<p style="font-size:0px">{}</p>',
    "<p title='{}'>x</p>",
    '<input value="{}">',
    '<meta name=description content="{}">',
    '<div style="display:none"><div><p>{}</p></div></div>',
    "<script><p>{}</p></script>",
]


@pytest.mark.parametrize("html", HIDDEN)
@pytest.mark.parametrize("convert", [markdown, text])
def test_what_a_reader_does_not_see_is_left_out(html: str, convert: Callable[[str], str]) -> None:
    """Scripts, styles, navigation, forms, hidden elements, comments and attributes."""
    page = f"<html><body><p>{SHOWN}</p>{html.format('SECRET')}<p>{SHOWN}</p></body></html>"
    assert "SECRET" not in convert(page)
    assert convert(page).count(SHOWN) == 2


@pytest.mark.parametrize(
    "style", ["opacity:0.5", "font-size:10px", "display:block", "opacity:1", "font-size:0.9em"]
)
def test_what_a_reader_sees_stays(style: str) -> None:
    """A style that only looks as if it hid something."""
    assert markdown(f'<p style="{style}">{SHOWN}</p>') == SHOWN


def test_page_in_one_form_is_not_lost() -> None:
    """Some sites put everything into a form."""
    assert SHOWN in markdown(f"<form><h1>{SHOWN}</h1><p>{SHOWN}</p><input></form><p>x</p>")


def test_main_part_is_the_page() -> None:
    """Where there is one, and it says something."""
    long = f"{SHOWN}. " * 20
    assert "footer" not in markdown(f"<div>header</div><main><p>{long}</p></main><footer>footer</footer>")
    assert "footer" in markdown("<main></main><footer>footer</footer>")


def test_plain_text_has_blocks_on_lines_of_their_own() -> None:
    """And nothing but text."""
    assert text("<p>a <b>b</b>\n c</p><p>d<br>e</p><ul><li>f<li>g</ul><td>h</td><td>i</td>") == (
        "a b c\nd\ne\nf\ng\nh\ti"
    )


@pytest.mark.parametrize(
    ("html", "wanted", "plain"),
    [
        ("x<pre>\na\n\n\n\n  b\n\n</pre>y", "x\n\n```\na\n\n\n\n  b\n```\n\ny", "x\na\n\n\n\n  b\n\n\ny"),
        ("<pre>a\n<b>\n\n</b>\n  b</pre>", "```\na\n\n\n\n  b\n```", "a\n\n\n\n  b"),
        ("<li>x<pre>a\n\n\n b</pre>", "- x\n\n  ```\n  a\n\n\n   b\n  ```", "x\na\n\n\n b"),
        ("<pre>\n\n  a\ufdd0b\n \n\n</pre>", "```\n  ab\n```", "  ab"),
        ("<pre></pre><p>x</p><pre> \n </pre>", "x", "x"),
    ],
)
def test_preformatted_text_keeps_its_lines(html: str, wanted: str, plain: str) -> None:
    """Indentation and blank lines are part of it, in either form."""
    assert (markdown(html), text(html)) == (wanted, plain)


LONG = "words " * 60


@pytest.mark.parametrize(
    ("html", "notes"),
    [
        ("<script src=app.js></script><div id=root></div>", ["may be made by scripts"]),
        ("<script type='application/ld+json'>{}</script>", []),
        (f"<script>run()</script><p>{LONG}</p>", []),
        ("<div hidden>secret</div>", ["6 characters in hidden elements were left out"]),
        (
            "<div style='display:none'><p hidden>a</p>b</div>",
            ["2 characters in hidden elements were left out"],
        ),
        (f"<p>{LONG}</p><div aria-hidden=true>x</div>", []),
        (f"<p>{LONG}</p><div hidden>{LONG}</div>", ["359 characters in hidden elements"]),
        ("<template><p>row</p></template>", ["3 characters in templates"]),
        ("<template shadowrootmode=open><p>row</p></template>", []),
        ("<nav>there</nav><div role=search hidden>find</div><style>p{}</style>", []),
    ],
)
def test_text_that_was_left_out_is_noted(html: str, notes: list[str]) -> None:
    """A page that seems to say little says why."""
    for mode in ("markdown", "text"):
        found = html_markdown.convert_page(html, mode=mode, base=BASE, max_chars=1000)["notes"]
        assert isinstance(found, list)
        assert len(found) == len(notes), found
        assert all(words in note for words, note in zip(notes, found, strict=True))


def test_title_is_one_short_line() -> None:
    """Whatever it was."""
    found = html_markdown.convert_page("<title> a\n b </title>x", mode="text", base=BASE, max_chars=10)
    assert found == {"title": "a b", "text": "x", "more": False, "notes": []}
    found = html_markdown.convert_page(f"<title>{'t' * 999}</title>xyz", mode="text", base=BASE, max_chars=2)
    assert (found["text"], found["more"], len(str(found["title"]))) == ("xy", True, 300)


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.one_of(
            st.text(max_size=8),
            st.sampled_from(
                [
                    "div",
                    "p",
                    "a href=x",
                    "table",
                    "td",
                    "li",
                    "form",
                    "main",
                    "b",
                    "pre",
                    "title",
                    "base href=:",
                ]
            ).map("<{}>".format),
            st.sampled_from(["div", "p", "a", "table", "td", "li", "form", "main", "b", "pre", "title"]).map(
                "</{}>".format
            ),
        ),
        max_size=25,
    )
)
def test_any_page_converts(parts: list[str]) -> None:
    """Whatever is open, closed twice or never: no error, and the same twice."""
    html = "".join(parts)
    assert markdown(html) == markdown(html)
    assert text(html) == text(html)


NINES = "9" * 5000
SECTIONS = (
    "<![",
    "<![>",
    "<![foo[x]]>",
    "3 <![ 4",
    "<code>a<![0]</code>",
    '<![><img src="]>x',
    "<![ if x]>",
    "<![cdatax[y]]>",
)
ODD = (
    *SECTIONS,
    *(
        "<![CDATA[",
        "<![CDATA[x]]>",
        "<![if !IE]>x<![endif]>",
        "]]>",
        "<!",
        "<!doctype [",
        "<?",
        "<?xml",
        "<!--",
        "--!>",
    ),
    *(
        "<a ",
        '<a href="',
        "'>",
        "</",
        "</ p>",
        "<>",
        "<script>",
        "</script>",
        "<textarea>",
        "<plaintext>",
        "<title>",
        "<svg>",
    ),
    *(
        f"&#{NINES};",
        f"<p title='&#{NINES};'>",
        f"&#x{'f' * 5000};",
        "&#xD800;",
        "&#0;",
        "&amp",
        "&bogus;",
        "&#00000000065;",
    ),
    *(
        "<ol start=½><li>x</ol>",
        f"<ol start={NINES}><li>x</ol>",
        "<table><tr><td colspan=²>x",
        f"<h{NINES}>",
        "<h²>",
        "<h0>",
    ),
    *(
        "<td colspan=999999999>",
        "<base href=http://[>",
        "<a href=//[x>y</a>",
        "\0",
        "\ud800",
        "\ufeff",
        "\x0b",
        "http://x.y/z",
        "/etc",
    ),
)
PAGES = st.lists(
    st.sampled_from(ODD) | st.text(st.characters(exclude_categories=[]), max_size=6), max_size=8
).map("".join)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("convert", [markdown, text])
def test_nothing_odd_makes_a_page_unreadable(odd: str, convert: Callable[[str], str]) -> None:
    """Marked sections, numbers of five thousand digits, tags that never end: what is before is read."""
    assert SHOWN in convert(f"<p>{SHOWN}</p>{odd}")


@pytest.mark.parametrize("odd", SECTIONS)
def test_what_is_no_marked_section_is_text(odd: str) -> None:
    """Python's parser refuses a page for it; it hides nothing behind it."""
    assert markdown(f"<p>{SHOWN}</p>{odd.partition('<img')[0]}<p>{SHOWN}</p>").count(SHOWN) == 2


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(PAGES)
def test_no_page_is_refused(page: str) -> None:
    """Whatever the three libraries make of it."""
    for mode in ("markdown", "text"):
        found = html_markdown.convert_page(page, mode=mode, base=BASE, max_chars=1000)
        assert isinstance(found["text"], str)


def test_characters_by_long_numbers_are_read() -> None:
    """Zeros before a number change nothing; a number of no character is not one."""
    assert markdown("<p>&#00000000065;&#x000000042;</p>") == "AB"
    assert markdown(f"<p>a&#{NINES};b</p>") == "a\N{REPLACEMENT CHARACTER}b"


def test_markdown_that_fails_becomes_plain_text() -> None:
    """Of what a reader sees, as always."""
    page = f"<ol start=½><li>{SHOWN}</ol><p hidden>SECRET</p>"
    assert markdown(page) == SHOWN


def test_page_that_can_t_be_parsed_is_its_text() -> None:
    """Without tags, scripts and comments."""
    page = "<script>SECRET</script><!-- SECRET --><p title='>'>a &lt; b</p\n><b>c</b><style>SECRET"
    assert html_markdown.remove_tags(page).split() == ["'>a", "<", "b", "c"]


def never() -> bool:
    """Nobody stops the work."""
    return False


def test_process_says_the_same(nothing_left: Leftovers) -> None:
    """It is the same conversion, elsewhere; it leaves nothing behind."""
    html = "<title>T</title><h1>Head ü \N{GRINNING FACE}</h1><p>x</p>"
    with nothing_left():
        found = html_process.convert_page(html, mode="markdown", base=BASE, max_chars=100, stop=never)
    assert (found.title, found.text, found.more) == ("T", "# Head ü \N{GRINNING FACE}\n\nx", False)


def test_page_longer_than_any_pipe_is_converted(nothing_left: Leftovers) -> None:
    """It is given to the process as it takes it."""
    html = "<p>" + "a word " * 100_000 + f"</p><h2>{SHOWN}</h2>"
    found = html_process.convert_page(html, mode="markdown", base=BASE, max_chars=10**6, stop=never)
    assert len(found.text) > 699_000
    assert found.text.endswith(f"## {SHOWN}")


SIZE = 2 * 2**20
HOSTILE = {
    "deep": "<div>" * (SIZE // 5),
    "deep and closed": "<b>" * (SIZE // 7) + SHOWN + "</b>" * (SIZE // 7),
    "deep links": '<a href="x">' * (SIZE // 12) + SHOWN,
    "deep lists": "<ul><li>" * (SIZE // 8) + SHOWN,
    "deep tables": "<table><tr><td>" * (SIZE // 15) + SHOWN,
    "attributes": "<p " + "a=1 " * (SIZE // 4) + f">{SHOWN}",
    "elements": "<i>x</i>" * (SIZE // 8),
    "comments": "<!-" * (SIZE // 3),
    "open tag": "<a" * (SIZE // 2),
    "entities": "&amp" * (SIZE // 4),
    "one word": "x" * SIZE,
    "forms": "<form>x" * (SIZE // 7),
    "style": f'<p style="{"display:" * (SIZE // 8)}">{SHOWN}',
}


@pytest.mark.short(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_page_costs_its_process_alone(name: str, nothing_left: Leftovers) -> None:
    """Two megabytes of it end in a text or in an error, in time, and leave no process."""
    began = time.monotonic()
    with nothing_left():
        try:
            found = html_process.convert_page(
                HOSTILE[name], mode="markdown", base=BASE, max_chars=50_000, stop=never, limit_s=2
            )
        except ExecutionError as error:
            assert "could not be converted" in str(error)
        else:
            assert len(found.text) <= 50_000
    assert time.monotonic() - began < 30


def test_deep_page_becomes_plain_text(nothing_left: Leftovers) -> None:
    """Too deep for Markdown is not too deep to read."""
    html = "<div>" * 5000 + f"<h1>{SHOWN}</h1>" + "</div>" * 5000
    found = html_process.convert_page(html, mode="markdown", base=BASE, max_chars=1000, stop=never)
    assert found.text == SHOWN


@pytest.mark.slow
def test_conversion_is_ended_at_its_limit(nothing_left: Leftovers) -> None:
    """The process is killed, not waited for."""
    with nothing_left(), pytest.raises(ExecutionError, match=r"within 0\.3 s"):
        html_process.convert_page(
            HOSTILE["elements"], mode="markdown", base=BASE, max_chars=100, stop=never, limit_s=0.3
        )


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import no_such_library", r"site-packages lack .*no_such_library"),
        ("raise MemoryError", "takes too much memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "takes too much memory"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGALRM)", "takes too long"),
        ("raise ValueError('a page that is odd')", "a page that is odd"),
        ("print('no answer')", "ended with 0"),
        ("import sys; sys.exit(3)", "ended with 3"),
    ],
)
def test_error_names_the_true_reason(
    program: str, reason: str, tmp_path: Path, nothing_left: Leftovers
) -> None:
    """A missing library is not too much memory, and the other way round."""
    path = tmp_path / "program.py"
    path.write_text(program)
    with nothing_left(), pytest.raises(ExecutionError, match=reason):
        html_process.convert_page("x", mode="text", base=BASE, max_chars=9, stop=never, program=path)


def test_odd_page_is_converted_in_its_process(nothing_left: Leftovers) -> None:
    """As a tool asks for it."""
    with nothing_left():
        page = "<p>Facts.</p><code>a<![0]</code>"
        found = html_process.convert_page(page, mode="markdown", base=BASE, max_chars=1000, stop=never)
    assert found.text == "Facts.\n\n`a<![0]`"


def test_conversion_nobody_waits_for_is_ended(nothing_left: Leftovers) -> None:
    """A cancelled call takes its process with it."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    with nothing_left(), pytest.raises(ExecutionError, match="cancelled"):
        html_process.convert_page(HOSTILE["elements"], mode="markdown", base=BASE, max_chars=100, stop=stop)


def test_process_sees_no_environment(nothing_left: Leftovers) -> None:
    """It is given pipes, and of the environment no more than the loader needs."""
    with nothing_left():
        process = own_process.start_process(html_process.PROGRAM, packages=True, purpose="to convert in")
        environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        own_process.end_process(process)
    assert {entry.partition(b"=")[0] for entry in environment} <= {b"", b"LD_LIBRARY_PATH", b"LC_CTYPE"}
