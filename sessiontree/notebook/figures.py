"""Figures of a tree: time, tokens, cost, approvals and retries by session. They need matplotlib.

The pictures are PNG, drawn in memory: no window opens, and no setting of the notebook's own figures changes.
"""

from __future__ import annotations

import importlib
import io
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.notebook.tree_look import look
from sessiontree.version import explain_installation

MAX_BARS: Final = 40
"""Most sessions of a figure: those with the most."""
_INK: Final = "#1f2933"
_COLOURS: Final = {"model": "#4a6fd0", "tool": "#68717c", "waiting": "#e0a93b"}
_FIRST, _SECOND = "#1b5e9e", "#b3541e"
WHAT: Final = ("time", "tokens", "cost", "approvals", "retries")


@dataclass(frozen=True, slots=True)
class TreeFigure:
    """One picture."""

    title: str
    description: str
    """What it shows, in words."""
    png: bytes

    def __repr__(self) -> str:
        """Return what it shows."""
        return f"<figure: {self.description}>"

    def _repr_png_(self) -> bytes:
        """Return the picture, for a notebook."""
        return self.png


def figure(tree: Any, what: str = "time") -> TreeFigure:
    """Draw a tree, open or closed.

    Args:
        tree: The tree.
        what: ``time`` (model, tools, waiting), ``tokens``, ``cost``, ``approvals`` (how long people took), or
            ``retries`` (failed turns and calls).

    Raises:
        ConfigError: matplotlib is not installed, or the figure is unknown.
        SessionTreeError: the tree can't be read.
    """
    if what not in WHAT:
        raise ConfigError(f"figure {what!r} is unknown; choose one of {', '.join(WHAT)}")
    seen = look(tree.state_dir, tree.tree_id, with_times=what in {"time", "approvals"})
    rows = [dict(zip(seen["snapshot"]["columns"], row, strict=True)) for row in seen["snapshot"]["rows"]]
    title, unit, parts = _DRAWN[what](rows, seen["spans"])
    order = sorted(parts, key=lambda path: -sum(parts[path].values()))[:MAX_BARS]
    shown = {path: parts[path] for path in parts if path in set(order)}
    words = ", ".join(f"{path} {sum(values.values()):,.4g}" for path, values in list(shown.items())[:8])
    return TreeFigure(title, f"{title} in {unit}: {words or 'none'}", _draw_png(title, unit, shown))


Parts = dict[str, dict[str, float]]
"""By session, its amounts by name."""


def _time(rows: Sequence[Mapping[str, Any]], spans: Sequence[Any]) -> tuple[str, str, Parts]:
    parts: Parts = {}
    for number, start, end, kind, _, _ in spans:
        if end is not None:
            amounts = parts.setdefault(rows[number]["path"], dict.fromkeys(_COLOURS, 0.0))
            amounts[kind] += (end - start) / 1000
    return "Time by session", "seconds", parts


def _measure_approvals(rows: Sequence[Mapping[str, Any]], spans: Sequence[Any]) -> tuple[str, str, Parts]:
    parts: Parts = {}
    for number, start, end, kind, _, why in spans:
        if end is not None and kind == "waiting" and why.startswith("approval"):
            amounts = parts.setdefault(rows[number]["path"], defaultdict(float))
            amounts[why.removeprefix("approval: ")] += (end - start) / 1000
    return "Waiting for approvals", "seconds", parts


def _count_tokens(rows: Sequence[Mapping[str, Any]], spans: Sequence[Any]) -> tuple[str, str, Parts]:
    return "Tokens by session", "tokens", {row["path"]: {"tokens": row["tokens"]} for row in rows}


def _collect_costs(rows: Sequence[Mapping[str, Any]], spans: Sequence[Any]) -> tuple[str, str, Parts]:
    return "Cost by session", "dollars", {row["path"]: {"cost": row["cost_usd"] or 0.0} for row in rows}


def _count_retries(rows: Sequence[Mapping[str, Any]], spans: Sequence[Any]) -> tuple[str, str, Parts]:
    failed = {row["path"]: {"failures": float(row["failures"])} for row in rows if row["failures"]}
    return "Failed turns and calls by session", "failures", failed


_DRAWN: Final[Mapping[str, Callable[..., tuple[str, str, Parts]]]] = {
    "time": _time,
    "tokens": _count_tokens,
    "cost": _collect_costs,
    "approvals": _measure_approvals,
    "retries": _count_retries,
}


def _draw_png(title: str, unit: str, parts: Parts) -> bytes:
    try:
        matplotlib, agg, figures = map(
            importlib.import_module,
            ("matplotlib", "matplotlib.backends.backend_agg", "matplotlib.figure"),
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"figures need matplotlib, of the extra plot: {explain_installation('plot')}"
        ) from error
    # names are text, never formulas
    style = {**matplotlib.rcParamsDefault, "text.parse_math": False, "text.color": _INK, "font.size": 10}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        height_in = 1.2 + 0.32 * max(1, len(parts))
        picture = figures.Figure(figsize=(7.2, height_in), dpi=120, layout="constrained", facecolor="white")
        agg.FigureCanvasAgg(picture)
        axes = picture.add_subplot()
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xlabel(unit)
        _draw(axes, parts)
        out = io.BytesIO()
        picture.savefig(out, format="png", metadata={"Software": None})
        return out.getvalue()


def _draw(axes: Any, parts: Parts) -> None:
    paths = list(parts)
    places = range(len(paths))
    left = [0.0] * len(paths)
    names = list(dict.fromkeys(name for amounts in parts.values() for name in amounts))
    for number, name in enumerate(names):
        widths = [parts[path].get(name, 0.0) for path in paths]
        colour = _COLOURS.get(name, (_FIRST, _SECOND)[number % 2])
        axes.barh(places, widths, left=left, label=name, color=colour)
        left = [each + width for each, width in zip(left, widths, strict=True)]
    axes.set_yticks(list(places), paths)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        axes.legend(frameon=False, loc="lower right")
