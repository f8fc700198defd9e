"""Scores of pages: what costs how many points, from measures alone."""

from __future__ import annotations

from typing import Any

import pytest

from sessiontree_tools.pages.page_scores import (
    CATEGORY_WEIGHTS,
    PERFORMANCE_WEIGHTS,
    RESPONSIVE_WEIGHTS,
    SEO_WEIGHTS,
    CategoryScore,
    PageBudgets,
    join_scores,
    score_accessibility,
    score_links,
    score_performance,
    score_responsive,
    score_seo,
)

BUDGETS = PageBudgets(
    largest_paint_ms=1000, layout_shift=0.1, blocking_ms=200, transfer_kb=100, elements=800, requests=30
)
TIMES = {
    "largest_paint_ms": 400, "layout_shift": 0.0, "blocking_ms": 0, "transfer_bytes": 50_000, "requests": 5,
}  # fmt: skip


def measures() -> dict[str, Any]:
    """Return the measures of a page without a fault."""
    return {
        "elements": 100,
        "layout": {"width": 375, "scroll": 375, "wide": []},
        "viewport": "width=device-width, initial-scale=1",
        "targets": {"count": 10, "small": [], "small_count": 0},
        "text": {"chars": 1000, "small": 0, "places": []},
        "images": {"count": 1, "unsized": [], "large": [], "without_alt": []},
        "head": {
            "title": "A title that says enough",
            "description": "A description that says in one sentence what a visitor finds here.",
            "language": "en-GB",
            "canonical": "https://a.example/",
            "robots": "",
            "open_graph": ["og:title", "og:description", "og:type", "og:image"],
        },
        "headings": [{"level": level, "text": "a"} for level in (1, 2, 3, 3, 2)],
    }


def rules_of(score: CategoryScore) -> list[str]:
    """Return the rules of the issues."""
    return [issue.rule for issue in score.issues]


@pytest.mark.covers("U19")
def test_weights_add_up_and_a_page_without_fault_has_all_points() -> None:
    """Each category has 100 points, or the mean would not be one of equals."""
    tables = (CATEGORY_WEIGHTS, PERFORMANCE_WEIGHTS, RESPONSIVE_WEIGHTS, SEO_WEIGHTS)
    assert [sum(table.values()) for table in tables] == [100] * 4
    scores = [
        score_performance(TIMES, measures(), BUDGETS),
        score_responsive({"mobile": measures(), "tablet": measures(), "desktop": measures()}),
        score_seo(measures()),
        score_links(12, {}),
        score_accessibility({"passes": ["serious", "minor"], "violations": []}),
    ]
    assert [(score.score, score.issues) for score in scores] == [(100, [])] * 5


@pytest.mark.parametrize(
    ("times", "rule", "score"),
    [
        ({"largest_paint_ms": 1000}, None, 100),
        ({"largest_paint_ms": 1750}, "largest_paint", 87),
        ({"largest_paint_ms": 2500}, "largest_paint", 75),
        ({"largest_paint_ms": 90_000}, "largest_paint", 75),
        ({"largest_paint_ms": None}, "largest_paint", 75),
        ({"layout_shift": 0.9}, "layout_shift", 80),
        ({"blocking_ms": 350}, "blocking_time", 92),
        ({"transfer_bytes": 10_000_000}, "transfer_size", 85),
        ({"requests": 80}, "requests", 95),
    ],
)
def test_points_fall_evenly_between_the_budget_and_its_multiple(
    times: dict[str, Any], rule: str | None, score: int
) -> None:
    """Within the budget all, at two and a half times of it none; nothing painted is the worst."""
    found = score_performance({**TIMES, **times}, measures(), BUDGETS)
    assert (found.score, rules_of(found)) == (score, [] if rule is None else [rule])


def test_layout_targets_and_text_cost_their_share() -> None:
    """An overflow costs at the width where it is; targets and text by how many are small."""
    phone, desktop = measures(), measures()
    phone["layout"] = {"width": 375, "scroll": 900, "wide": ["div.wide"]}
    phone["viewport"] = ""
    phone["targets"] = {"count": 10, "small": [{"place": "a", "width": 9, "height": 9}], "small_count": 5}
    phone["text"] = {"chars": 100, "small": 50, "places": ["p"]}
    score = score_responsive({"mobile": phone, "desktop": desktop})
    assert score.score == 20 + 0 + 10 + 7
    assert rules_of(score) == ["overflow_mobile", "viewport", "small_targets", "small_text"]
    assert list(score.issues[2].places) == ["a: 9 x 9"]
    phone["viewport"] = "width=device-width, user-scalable = no"
    assert "viewport" in rules_of(score_responsive({"mobile": phone}))


def test_what_search_engines_read_costs_by_its_table() -> None:
    """Each fault alone costs its weight, a title of a wrong length half of it."""
    faults: list[tuple[str, dict[str, Any], int]] = [
        ("title", {"head": {**measures()["head"], "title": ""}}, 80),
        ("title", {"head": {**measures()["head"], "title": "x" * 99}}, 90),
        ("description", {"head": {**measures()["head"], "description": ""}}, 85),
        ("language", {"head": {**measures()["head"], "language": "12"}}, 90),
        ("canonical", {"head": {**measures()["head"], "canonical": ""}}, 95),
        ("indexable", {"head": {**measures()["head"], "robots": "NoIndex, follow"}}, 95),
        ("open_graph", {"head": {**measures()["head"], "open_graph": ["og:title"]}}, 92),
        ("heading_order", {"headings": [{"level": 1, "text": "a"}, {"level": 4, "text": "b"}]}, 90),
        ("main_heading", {"headings": []}, 85),
        ("image_alternatives", {"images": {**measures()["images"], "without_alt": ["img"]}}, 90),
    ]
    for rule, fault, left in faults:
        score = score_seo({**measures(), **fault})
        assert (rules_of(score), score.score) == ([rule], left)


def test_accessibility_counts_by_impact_and_links_by_number() -> None:
    """A violated rule gets nothing, however often it is kept elsewhere."""
    violation = {"id": "image-alt", "impact": "critical", "help": "h", "how": "do", "places": ["img"]}
    score = score_accessibility({"passes": ["critical", "critical"], "violations": [violation]})
    assert (score.score, rules_of(score)) == (66, ["image-alt"])
    assert score_accessibility({"passes": [], "violations": [{**violation, "impact": None}]}).score == 0
    assert score_links(4, {"a.html": "the file is not there"}).score == 75


def test_score_of_the_page_weighs_what_was_asked_for() -> None:
    """A category that was not looked at does not count."""
    bad = CategoryScore(0, 10)
    good = CategoryScore(10, 10)
    assert join_scores({"accessibility": bad, "links": good}) == 25
    assert join_scores({"seo": good}) == 100
