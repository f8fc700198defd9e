"""Scores of a page from what was measured: 0 to 100 by category, with the issues that cost points.

Pure: equal measures give equal scores. Weights are in the tables below and in docs/tools.md.
Not here: measuring (page_measures.js, validate_page.py), or where references lead (page_files.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

Category: TypeAlias = Literal["accessibility", "performance", "responsive", "seo", "links"]
Severity: TypeAlias = Literal["critical", "serious", "moderate", "minor"]

CATEGORY_WEIGHTS: Final[Mapping[Category, int]] = {
    "accessibility": 30,
    "performance": 25,
    "responsive": 20,
    "seo": 15,
    "links": 10,
}
"""Weights of the categories in the score of the page; those that were not asked for do not count."""
IMPACT_WEIGHTS: Final[Mapping[str, int]] = {"critical": 10, "serious": 7, "moderate": 3, "minor": 1}
"""Weights of the rules of axe-core, by the impact of a violation."""
PERFORMANCE_WEIGHTS: Final = {
    "largest_paint": 25,
    "layout_shift": 20,
    "blocking_time": 15,
    "transfer_size": 15,
    "page_elements": 10,
    "requests": 5,
    "unsized_images": 5,
    "oversized_images": 5,
}
RESPONSIVE_WEIGHTS: Final = {"overflow": 40, "viewport": 25, "small_targets": 20, "small_text": 15}
SEO_WEIGHTS: Final = {
    "title": 20,
    "description": 15,
    "main_heading": 15,
    "heading_order": 10,
    "language": 10,
    "image_alternatives": 10,
    "open_graph": 10,
    "canonical": 5,
    "indexable": 5,
}
POOR: Final = 2.5
"""At this multiple of its budget a measure scores nothing; between, points fall evenly."""
TITLE_CHARS: Final = (10, 70)
DESCRIPTION_CHARS: Final = (50, 170)
OPEN_GRAPH: Final = ("og:title", "og:description", "og:type", "og:image")
MIN_TARGET: Final = 24
"""Least width and height of what is tapped, in CSS pixels. Source: WCAG 2.2, 2.5.8."""
MIN_FONT: Final = 12
MAX_PLACES: Final = 5


@dataclass(frozen=True, slots=True)
class PageBudgets:
    """What a page may take; a measure within its budget scores fully."""

    largest_paint_ms: float
    layout_shift: float
    blocking_ms: float
    transfer_kb: float
    elements: int
    requests: int


@dataclass(frozen=True, slots=True)
class PageIssue:
    """One thing that costs points."""

    category: Category
    rule: str
    severity: Severity
    text: str
    places: Sequence[str] = ()
    """Selectors, files or addresses."""
    suggestion: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return it for the model."""
        return {
            "category": self.category,
            "rule": self.rule,
            "severity": self.severity,
            "text": self.text,
            **({"places": list[JsonValue](self.places)[:MAX_PLACES]} if self.places else {}),
        }


@dataclass(slots=True)
class CategoryScore:
    """Points of a category, and what cost some."""

    points: float = 0.0
    most: float = 0.0
    issues: list[PageIssue] = field(default_factory=list)

    @property
    def score(self) -> int:
        """0 to 100; rounded down, so that 100 means no issue."""
        return 100 if self.most == 0 else int(100 * self.points / self.most + 1e-9)

    def add(self, weight: float, share: float, issue: PageIssue) -> None:
        """Count a part of the score; the issue belongs to it unless the share is 1.

        Args:
            weight: Points of the part.
            share: How much of them the page gets, 0 to 1.
            issue: Why not all.
        """
        self.most += weight
        self.points += weight * share
        if share < 1:
            self.issues.append(issue)


def score_accessibility(found: Mapping[str, Any]) -> CategoryScore:
    """Return the score of what axe-core found: ``{violations: [{id, impact, help, how, places}], passes}``.

    ``passes`` has the impact of each rule that holds.
    Each rule counts with the weight of its impact; a rule that is violated anywhere gets no points.
    """
    score = CategoryScore()
    for impact in found["passes"]:
        score.most += IMPACT_WEIGHTS.get(impact, 1)
    score.points = score.most
    for each in found["violations"]:
        severity: Severity = each["impact"] if each["impact"] in IMPACT_WEIGHTS else "minor"
        issue = PageIssue("accessibility", each["id"], severity, each["help"], each["places"], each["how"])
        score.add(IMPACT_WEIGHTS[severity], 0, issue)
    return score


def score_performance(
    timed: Mapping[str, Any], measured: Mapping[str, Any], budgets: PageBudgets
) -> CategoryScore:
    """Return the score of times and sizes.

    Args:
        timed: ``{largest_paint_ms, layout_shift, blocking_ms, transfer_bytes, requests}``; the time of the
            paint is None if nothing was painted.
        measured: What page_measures.js returned.
        budgets: What is allowed.
    """
    score = CategoryScore()
    paint = timed["largest_paint_ms"]
    kb = timed["transfer_bytes"] / 1024
    parts: list[tuple[str, float, float, str, str]] = [
        ("largest_paint", float("inf") if paint is None else paint, budgets.largest_paint_ms,
         "nothing was painted" if paint is None else f"the largest paint came after {paint:.0f} ms",
         "let the largest part of the first view need fewer files"),
        ("layout_shift", timed["layout_shift"], budgets.layout_shift,
         f"the layout shifts by {timed['layout_shift']:.3f}", "give what loads late its size beforehand"),
        ("blocking_time", timed["blocking_ms"], budgets.blocking_ms,
         f"scripts block the page for {timed['blocking_ms']:.0f} ms", "split or drop long scripts"),
        ("transfer_size", kb, budgets.transfer_kb,
         f"the page loads {kb:.0f} KB", "make images and scripts smaller"),
        ("page_elements", measured["elements"], budgets.elements,
         f"the page has {measured['elements']} elements", "use fewer elements"),
        ("requests", timed["requests"], budgets.requests,
         f"the page makes {timed['requests']} requests", "join files"),
    ]  # fmt: skip
    for rule, value, budget, text, suggestion in parts:
        issue = PageIssue(
            "performance", rule, "serious" if value > POOR * budget else "moderate",
            f"{text}, the budget is {budget:g}", (), suggestion,
        )  # fmt: skip
        score.add(PERFORMANCE_WEIGHTS[rule], _compute_share(value, budget), issue)
    images = measured["images"]
    for rule, key, text, suggestion in (
        (
            "unsized_images",
            "unsized",
            "images have no size before they load",
            "set width and height of images",
        ),
        ("oversized_images", "large", "images are much larger than they are shown", "scale images down"),
    ):
        places = images[key]
        issue = PageIssue("performance", rule, "moderate", text, places, suggestion)
        score.add(PERFORMANCE_WEIGHTS[rule], 0 if places else 1, issue)
    return score


def score_responsive(by_width: Mapping[str, Mapping[str, Any]]) -> CategoryScore:
    """Return the score of the layout at each viewport, by its name; targets and text count on ``mobile``."""
    score = CategoryScore()
    for name, measured in by_width.items():
        layout = measured["layout"]
        issue = PageIssue(
            "responsive", f"overflow_{name}", "serious",
            f"at {layout['width']} px the page is {layout['scroll']} px wide", layout["wide"],
            "let wide parts wrap, shrink, or scroll by themselves",
        )  # fmt: skip
        fits = layout["scroll"] <= layout["width"] + 1
        score.add(RESPONSIVE_WEIGHTS["overflow"] / len(by_width), 1 if fits else 0, issue)
    phone = by_width["mobile"]
    content = phone["viewport"].replace(" ", "").lower()
    words = "there is no <meta name=viewport>" if not content else f"the viewport is {content!r}"
    is_fit = "width=device-width" in content and not any(
        each in content for each in ("user-scalable=no", "user-scalable=0", "maximum-scale=1")
    )
    issue = PageIssue(
        "responsive", "viewport", "critical", words, (),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
    )  # fmt: skip
    score.add(RESPONSIVE_WEIGHTS["viewport"], 1 if is_fit else 0, issue)
    targets, text = phone["targets"], phone["text"]
    issue = PageIssue(
        "responsive", "small_targets", "moderate",
        f"{targets['small_count']} of {targets['count']} targets are smaller than {MIN_TARGET} px on a phone",
        [f"{each['place']}: {each['width']} x {each['height']}" for each in targets["small"]],
        "give links and buttons more padding",
    )  # fmt: skip
    score.add(
        RESPONSIVE_WEIGHTS["small_targets"],
        _compute_good_share(targets["small_count"], targets["count"]),
        issue,
    )
    issue = PageIssue(
        "responsive", "small_text", "moderate",
        f"{text['small']} of {text['chars']} characters are smaller than {MIN_FONT} px on a phone",
        text["places"], "make small text larger",
    )  # fmt: skip
    score.add(RESPONSIVE_WEIGHTS["small_text"], _compute_good_share(text["small"], text["chars"]), issue)
    return score


def score_seo(measured: Mapping[str, Any]) -> CategoryScore:
    """Return the score of what search engines and previews of links read."""
    score, head = CategoryScore(), measured["head"]
    levels = [each["level"] for each in measured["headings"]]
    jumps = [
        f"h{level} after h{before}: {heading['text']}"
        for before, level, heading in zip(levels, levels[1:], measured["headings"][1:], strict=False)
        if level > before + 1
    ]
    missing = [name for name in OPEN_GRAPH if name not in head["open_graph"]]
    title, description, mains = len(head["title"]), len(head["description"]), levels.count(1)
    language = head["language"].replace("-", "")
    parts: list[tuple[str, float, Severity, str, Sequence[str], str]] = [
        ("title", _score_length(title, TITLE_CHARS), "serious", _describe_length("title", title), (),
         f"write a title of {TITLE_CHARS[0]} to {TITLE_CHARS[1]} characters"),
        ("description", _score_length(description, DESCRIPTION_CHARS), "moderate",
         _describe_length("description", description), (),
         f'write <meta name="description"> of {DESCRIPTION_CHARS[0]} to {DESCRIPTION_CHARS[1]} characters'),
        ("main_heading", 1 if mains == 1 else 0, "moderate", f"the page has {mains} h1", (), "have one h1"),
        ("heading_order", 0 if jumps else 1, "minor", "headings leave levels out", jumps,
         "let each heading be at most one level below the one before"),
        ("language", 1 if language.isalpha() and language.isascii() else 0, "serious",
         "the page does not say its language", (), '<html lang="en">'),
        ("image_alternatives", 0 if measured["images"]["without_alt"] else 1, "serious",
         "images have no alt", measured["images"]["without_alt"], "describe images with alt"),
        ("open_graph", 1 - len(missing) / len(OPEN_GRAPH), "minor",
         f"{', '.join(missing)} missing", (), "add the og: properties for previews of links"),
        ("canonical", 1 if head["canonical"].startswith(("http://", "https://")) else 0, "minor",
         "there is no canonical address", (), '<link rel="canonical" href="https://…">'),
        ("indexable", 0 if "noindex" in head["robots"].lower() else 1, "moderate",
         "robots may not index the page", (), "remove noindex"),
    ]  # fmt: skip
    for rule, share, severity, text, places, suggestion in parts:
        score.add(SEO_WEIGHTS[rule], share, PageIssue("seo", rule, severity, text, places, suggestion))
    return score


def score_links(checked: int, broken: Mapping[str, str]) -> CategoryScore:
    """Return the score of references: the share that leads somewhere.

    Args:
        checked: How many were looked up.
        broken: Reference to what is wrong with it.
    """
    score = CategoryScore()
    score.most, score.points = float(checked), float(checked - len(broken))
    for reference, why in broken.items():
        issue = PageIssue("links", "broken", "serious", why, (reference,), "correct or remove the reference")
        score.issues.append(issue)
    return score


def join_scores(scores: Mapping[Category, CategoryScore]) -> int:
    """Return the weighted mean of categories, 0 to 100, rounded down."""
    weights = sum(CATEGORY_WEIGHTS[each] for each in scores)
    return int(sum(CATEGORY_WEIGHTS[name] * each.score for name, each in scores.items()) / weights + 1e-9)


def _compute_share(value: float, budget: float) -> float:
    """Return the share of points: 1 within the budget, 0 from ``POOR`` times the budget on."""
    if value <= budget:
        return 1
    return max(0.0, (POOR * budget - value) / ((POOR - 1) * budget)) if budget > 0 else 0


def _compute_good_share(bad: int, count: int) -> float:
    return 1 - bad / count if count else 1


def _score_length(length: int, bounds: tuple[int, int]) -> float:
    if length == 0:
        return 0
    return 1 if bounds[0] <= length <= bounds[1] else 0.5


def _describe_length(what: str, length: int) -> str:
    return f"the {what} has {length} characters" if length else f"there is no {what}"
