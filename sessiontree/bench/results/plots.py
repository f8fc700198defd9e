"""Pictures of a run: pass rates with intervals, and how time and cost are distributed. PNG, drawn in memory.

Matplotlib is loaded with this module alone, which needs the extra ``plot``. Nothing here reads its
configuration files or opens a window.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from matplotlib import rc_context, rcParamsDefault
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from sessiontree import make_visible
from sessiontree.bench.results.report import (
    RunReport,
    ScoreSummary,
    format_percent,
    format_seconds,
    format_span,
)
from sessiontree.bench.statistics.intervals import CONFIDENCE, compute_quantile
from sessiontree.contracts.values.quick_dataclass import dataclass

WIDTH_IN: Final = 7.2
_DPI: Final = 150
_ROW_IN: Final = 0.42
_NAME_CHARS: Final = 40
_MIN_BINS, _MAX_BINS = 8, 40
_BELOW: Final[dict[str, Any]] = {"loc": "outside lower center", "ncols": 2, "frameon": False}
"""Where a legend hides nothing."""
_INK, _FAINT, _FIRST, _SECOND = "#1f2933", "#d5dbe1", "#1b5e9e", "#b3541e"
_STYLE: Final[dict[str, Any]] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",  # it comes with matplotlib
    "text.parse_math": False,  # names are text, never formulas
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.axisbelow": True,
}


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture."""

    name: str
    """File name without its ending."""
    title: str
    description: str
    """What it shows, in words, for readers who do not see it."""
    png: bytes


def plots_of(report: RunReport) -> tuple[Plot, ...]:
    """Return the pictures of a report; those without values are left out."""
    plots = []
    if report.overall.scored:
        plots.append(_pass_rates(report.all_scores))
        plots.append(
            _plot_distribution(
                "wall_time", "Time per sample", "seconds", report.wall_ms, _format_wall_time, 1e-3
            )
        )
    if any(report.costs_usd):
        plots.append(
            _plot_distribution("cost", "Cost per sample", "US dollars", report.costs_usd, _format_cost, 1.0)
        )
    return tuple(plots)


def _format_wall_time(value: float | None) -> str:
    return format_seconds(value)


def _format_cost(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"


def _pass_rates(scores: Sequence[ScoreSummary]) -> Plot:
    def draw(axes: Any) -> None:
        for row, score in enumerate(scores):
            _draw_interval(axes, row - 0.13, score.pass_rate, _FIRST, "o")
            _draw_interval(axes, row + 0.13, score.clustered_pass_rate, _SECOND, "s")
        axes.set_yticks(range(len(scores)), [_shorten(score.name) for score in scores])
        axes.set_ylim(len(scores) - 0.5, -0.5)
        axes.set_xlim(-0.02, 1.02)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.grid(axis="x", color=_FAINT)
        axes.tick_params(axis="y", length=0)
        marks = [
            axes.plot([], [], color=color, marker=marker, label=name)[0]
            for color, marker, name in ((_FIRST, "o", "Wilson"), (_SECOND, "s", "bootstrap by sample"))
        ]
        axes.figure.legend(handles=marks, **_BELOW)

    title = f"Pass rate with {CONFIDENCE:.0%} intervals"
    said = "; ".join(
        f"{score.name} {format_percent(score.pass_rate.value)}, Wilson "
        f"{format_span(score.pass_rate, format_percent)}"
        for score in scores
    )
    height = 1.5 + _ROW_IN * len(scores)
    return Plot("pass_rates", title, f"{title}: {said}.", _draw_png(draw, title, height))


def _draw_interval(axes: Any, row: float, estimate: Any, color: str, marker: str) -> None:
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [row, row], color=color, linewidth=2, solid_capstyle="butt")
    if estimate.value is not None:
        axes.plot([estimate.value], [row], color=color, marker=marker, markersize=6)


def _plot_distribution(
    name: str,
    title: str,
    unit: str,
    values: Sequence[float],
    shown: Callable[[float | None], str],
    scale: float,
) -> Plot:
    middle, high = compute_quantile(values, 0.5), compute_quantile(values, 0.95)

    def draw(axes: Any) -> None:
        bins = min(_MAX_BINS, max(_MIN_BINS, round(2 * len(values) ** 0.5)))
        found = np.asarray(values, np.float64) * scale
        least, most = float(found.min()), float(found.max())
        reach = (least, most) if most > least else (0.0, 2 * most or 1.0)
        axes.hist(found, bins=bins, range=reach, color=_FIRST, alpha=0.85)
        for at, style, what in ((middle, "-", "median"), (high, "--", "95th percentile")):
            if at is not None:
                axes.axvline(at * scale, color=_SECOND, linestyle=style, label=f"{what}: {shown(at)}")
        axes.set_xlabel(unit)
        axes.set_ylabel("samples")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color=_FAINT)
        axes.figure.legend(**_BELOW)

    said = f"{title}: {len(values):,} values, median {shown(middle)}, 95th percentile {shown(high)}."
    return Plot(name, title, said, _draw_png(draw, title, 3.4))


def _shorten(name: str) -> str:
    plain = make_visible(name)
    return plain if len(plain) <= _NAME_CHARS else f"{plain[: _NAME_CHARS - 1]}…"


def _draw_png(draw: Callable[[Any], None], title: str, height_in: float) -> bytes:
    """Return a picture; a letter that the font lacks is drawn as a box, without a warning."""
    settings: dict[Any, Any] = dict(rcParamsDefault)
    settings.update(_STYLE)
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH_IN, height_in), dpi=_DPI, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontweight="bold")
        draw(axes)
        out = io.BytesIO()
        figure.savefig(out, format="png", metadata={"Software": None})
        return out.getvalue()
