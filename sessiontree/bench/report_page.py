"""The report of a run as one HTML page that needs nothing else: no script, no file, no address.

All text is escaped, and characters that hide or reorder text are shown as escapes: sample ids, errors and
answers come from anywhere. The page forbids scripts and connections to itself as well.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from sessiontree import make_visible
from sessiontree.bench.report import FailureGroup, RunReport

if TYPE_CHECKING:  # it loads matplotlib
    from sessiontree.bench.plots import Plot

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
code { font: .9em/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .3rem 0; }
figure { margin: 1.2rem 0; }
img { max-width: 100%; height: auto; }
figcaption { color: #52606d; }
"""


def page_of(report: RunReport, plots: Iterable[Plot]) -> str:
    """Return the page of a report as HTML."""
    title = f"{_safe(report.suite)}: benchmark report"
    parts = [
        f"<h1>{title}</h1>",
        "".join(f"<p>{_safe(line)}</p>" for line in report.summary_lines()),
        f"<p>Run: <code>{_safe(report.run_dir)}</code></p>",
        "<h2>Scores</h2>",
        _scores(report),
        *(_figure(plot) for plot in plots),
        "<h2>Models</h2>",
        _models(report),
        "<h2>Samples that did not pass</h2>",
        *(_group(group) for group in report.failures),
    ]
    if not report.failures:
        parts.append("<p>Every sample passed.</p>")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _safe(text: str) -> str:
    return escape(make_visible(text))


def _scores(report: RunReport) -> str:
    head, *rows = report.score_table()
    caption = (
        "Wilson's interval takes epochs as independent; the bootstrap draws samples with all their epochs."
    )
    return _table(caption, head, rows, numbers=range(1, len(head)))


def _models(report: RunReport) -> str:
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
    return _table("All sessions of the trees that were scored.", head, rows, numbers=range(1, len(head)))


def _figure(plot: Plot) -> str:
    data = base64.b64encode(plot.png).decode("ascii")
    said = _safe(plot.description)
    return (
        f'<figure><img alt="{said}" src="data:image/png;base64,{data}">'
        f"<figcaption>{said}</figcaption></figure>"
    )


def _group(group: FailureGroup) -> str:
    shown = group.cases[:MAX_SHOWN]
    rest = group.count - len(shown)
    more = f" The first {len(shown)} are listed." if rest else ""
    rows = [(each.sample_id, str(each.epoch), each.tree_id or "-", each.error) for each in shown]
    table = _table(
        f"Samples and the trees to look at.{more}", ("sample", "epoch", "tree", "reason"), rows, numbers=(1,)
    )
    opened = " open" if group.count <= MAX_SHOWN // 4 else ""
    return f"<details{opened}><summary>{_safe(group.kind)}: {group.count:,}</summary>{table}</details>"


def _table(
    caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int]
) -> str:
    right = frozenset(numbers)
    names = "".join(
        f'<th scope="col"{_number_class(index, right)}>{_safe(name)}</th>' for index, name in enumerate(head)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<th scope="row">{_safe(cell)}</th>'
            if index == 0
            else f"<td{_number_class(index, right) or _TEXT}>{_safe(cell)}</td>"
            for index, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_safe(caption)}">'
        f"<table><caption>{_safe(caption)}</caption>"
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


_TEXT: Final = ' class="text"'


def _number_class(index: int, right: frozenset[int]) -> str:
    return ' class="number"' if index in right else ""
