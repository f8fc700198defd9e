"""The report of a run as one HTML page that needs nothing else: no script, no file, no address.

All text is escaped, and characters that hide or reorder text are shown as escapes: sample ids, errors and
answers come from anywhere. The page forbids scripts and connections to itself as well.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from sessiontree import make_visible
from sessiontree.bench.results.report import FailureGroup, RunReport
from sessiontree.bench.results.run_history import RunOrigin
from sessiontree.contracts.values.quick_dataclass import dataclass

if TYPE_CHECKING:  # it loads matplotlib
    from sessiontree.bench.results.plots import Plot

MAX_SHOWN: Final = 100
"""Most samples that the page names for each kind of failure."""
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE: Final = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 70rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: #1f2933; background: #fff; }
h1 { font-size: 1.6rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin-top: 2rem; }
p { max-width: 60rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; color: #52606d; padding-bottom: .4rem; max-width: calc(100vw - 2rem); }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0;
  border-bottom: 1px solid #d5dbe1; }
th { white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap; }
td.text { overflow-wrap: anywhere; min-width: 12rem; }
summary:focus-visible, .scroll:focus-visible { outline: 2px solid #1b5e9e; }
a { color: #1b5e9e; }
code { font: .9em/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .3rem 0; }
figure { margin: 1.2rem 0; }
img { max-width: 100%; height: auto; }
figcaption { color: #52606d; }
"""


def render_report_page(
    report: RunReport, plots: Iterable[Plot], place_of: Callable[[str, int], str] | None = None
) -> str:
    """Return the page of a report as HTML.

    Args:
        report: The report.
        plots: Its pictures.
        place_of: Returns the address of a sample's page by its id and epoch; None = samples have none.
    """
    parts = [
        "".join(f"<p>{escape_visible(line)}</p>" for line in report.render_summary()),
        f"<p>Run: <code>{escape_visible(report.run_dir)}</code></p>",
        "<h2>Scores</h2>",
        _render_scores(report),
        *(_render_figure(plot) for plot in plots),
        "<h2>Models</h2>",
        _render_models(report),
        *_render_origin(report.origin),
        "<h2>Samples that did not pass</h2>",
        *(_group(group, place_of) for group in report.failures),
    ]
    if not report.failures:
        parts.append("<p>Every sample passed.</p>")
    return page_around(f"{report.suite}: benchmark report", parts)


def page_around(title: str, parts: Iterable[str]) -> str:
    """Return a page with a heading and these parts of HTML."""
    shown = escape_visible(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{shown}</h1>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


@dataclass(frozen=True, slots=True)
class Linked:
    """A cell of a table that leads somewhere."""

    text: str
    address: str
    """Relative to the page."""
    more: str = ""
    """Text after the link."""

    def html(self) -> str:
        """Return it as HTML."""
        return f'<a href="{escape(self.address)}">{escape_visible(self.text)}</a>{escape_visible(self.more)}'


def _render_cell(cell: Linked | str) -> str:
    return cell.html() if isinstance(cell, Linked) else escape_visible(cell)


def escape_visible(text: str) -> str:
    """Return text as HTML that shows all its characters."""
    return escape(make_visible(text))


def _render_scores(report: RunReport) -> str:
    head, *rows = report.score_table()
    caption = (
        "Wilson's interval takes epochs as independent; the bootstrap draws samples with all their epochs."
    )
    return render_table(caption, head, rows, numbers=range(1, len(head)))


def _render_models(report: RunReport) -> str:
    head = ("model", "sessions", "turns", "tool calls", "input tokens", "output tokens", "cost in USD")
    rows = [
        (
            each.model or "(not recorded)",
            f"{each.sessions:,}",
            f"{each.turns:,}",
            f"{each.tool_calls:,}",
            f"{each.input_tokens:,}",
            f"{each.output_tokens:,}",
            f"{each.cost_usd:,.4f}",
        )
        for each in report.models
    ]
    return render_table(
        "All sessions of the trees that were scored.", head, rows, numbers=range(1, len(head))
    )


def _render_origin(origin: RunOrigin) -> Iterator[str]:
    """Yield the commands of a run, and the code and settings of its rows."""
    if not origin.commands:
        return
    yield "<h2>Where it comes from</h2>"
    head = ("command", "kind", "code", "worked", "host", "git commit", "command line", "accepted changes")
    rows = [
        (
            str(each.number),
            each.kind,
            "-" if each.provenance is None else str(each.provenance),
            f"{each.worked_ms / 1000:,.1f} s{'' if each.is_over else ', not ended'}",
            str(each.circumstances.get("host", "-")),
            str(each.circumstances.get("git_commit", ""))[:12] or "-",
            " ".join(map(str, each.circumstances.get("command_line", ()))),
            "; ".join(each.accepted) or "-",
        )
        for each in origin.commands
    ]
    yield render_table("Commands that worked on the run.", head, rows, numbers=(2, 3))
    names = sorted({name for each in origin.provenances for name in each.facts})
    codes = [f"code {each.number}: {each.scores:,} scores" for each in origin.provenances]
    facts = [(name, *(each.facts.get(name, "-") for each in origin.provenances)) for name in names]
    caption = "Releases, digests of code, and settings that made the rows."
    table = render_table(caption, ("what", *codes), facts, numbers=())
    yield f"<details><summary>Code and settings</summary>{table}</details>"


def _render_figure(plot: Plot) -> str:
    data = base64.b64encode(plot.png).decode("ascii")
    said = escape_visible(plot.description)
    return (
        f'<figure><img alt="{said}" src="data:image/png;base64,{data}">'
        f"<figcaption>{said}</figcaption></figure>"
    )


def _group(group: FailureGroup, place_of: Callable[[str, int], str] | None) -> str:
    shown = group.cases[:MAX_SHOWN]
    rest = group.count - len(shown)
    more = f" The first {len(shown)} are listed." if rest else ""
    rows = [
        (
            Linked(each.sample_id, place_of(each.sample_id, each.epoch)) if place_of else each.sample_id,
            str(each.epoch),
            each.tree_id or "-",
            each.error,
        )
        for each in shown
    ]
    table = render_table(
        f"Samples and the trees to look at.{more}", ("sample", "epoch", "tree", "reason"), rows, numbers=(1,)
    )
    opened = " open" if group.count <= MAX_SHOWN // 4 else ""
    return (
        f"<details{opened}><summary>{escape_visible(group.kind)}: {group.count:,}</summary>{table}</details>"
    )


def render_table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Linked | str]],
    *,
    numbers: Iterable[int],
    words: Iterable[int] = (),
) -> str:
    """Return a table as HTML that scrolls where it is too wide.

    Args:
        caption: What it shows.
        head: Names of its columns.
        rows: Its cells; the first of a row is the row's name.
        numbers: Which columns stand to the right.
        words: Which columns hold a few words and may be narrow.
    """
    right, narrow = frozenset(numbers), frozenset(words)
    names = "".join(
        f'<th scope="col"{_number_class(index, right)}>{escape_visible(name)}</th>'
        for index, name in enumerate(head)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{_render_cell(cell)}</th>'
            if index == 0
            else f"<td{_number_class(index, right) or ('' if index in narrow else _TEXT)}>"
            f"{_render_cell(cell)}</td>"
            for index, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape_visible(caption)}">'
        f"<table><caption>{escape_visible(caption)}</caption>"
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_TEXT: Final = ' class="text"'


def _number_class(index: int, right: frozenset[int]) -> str:
    return ' class="number"' if index in right else ""
