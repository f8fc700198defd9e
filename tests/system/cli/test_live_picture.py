"""Pictures of a tree fit their place, count everyone, and hold nothing that could deceive."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sessiontree.channels.safe_text import make_visible
from sessiontree.cli.live_view import STYLES, Line, Pace, draw_picture
from sessiontree.contracts.facts.tree_facts import TreeFact
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.reports.events import ToolExecutionStart
from sessiontree.view.live_tree import LiveTree
from tests.unit.view.live_strategies import charged, ended, records, requested, spawned, tree_facts

Draw = Callable[[LiveTree, Pace, int, int], list[Line]]
PACE = Pace(75.0, 12.0)
WIDE = 500
COUNTED = re.compile(r"([\d,]+) (live|ended|more live|finished)")


def words_of(lines: list[Line]) -> list[str]:
    """Return lines without their styles."""
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def tree_of(*facts: TreeFact) -> LiveTree:
    """Return the tree of some facts."""
    tree = LiveTree()
    for one in records(facts):
        tree.take(one)
    return tree


def picture_is_sound(draw: Draw, facts: list[TreeFact], width: int, height: int) -> None:
    """It fits its place, is safe to look at, counts everyone once, and styles only what it knows."""
    tree = tree_of(*facts)
    for session in list(tree.sessions):
        tree.see(session, ToolExecutionStart("c1", "read\x1b[2J", {"path": "a\nb\u202e"}))
    lines = draw(tree, PACE, width, height)
    assert len(lines) <= max(0, height)
    for line in lines:
        text = "".join(piece for piece, _ in line)
        assert cell_len(text) <= width
        assert text == make_visible(text)
        assert {style for _, style in line} <= {*STYLES.values(), "bold", "dim", ""}
    if height > 0 and width >= WIDE:
        _counts_everyone(words_of(lines), tree)


def _counts_everyone(words: list[str], tree: LiveTree) -> None:
    totals = {what: int(number.replace(",", "")) for number, what in COUNTED.findall(words[-1])}
    assert (totals["live"], totals["ended"]) == (tree.live, tree.total - tree.live)
    rows = [line for line in words[:-1] if not line.startswith(("session ", "…"))]
    rest = {
        what: int(number.replace(",", ""))
        for line in words[:-1]
        for number, what in COUNTED.findall(line)
        if line.startswith("…")
    }
    if len(words) > 2:
        assert len(rows) + rest.get("more live", 0) + rest.get("finished", 0) == tree.total


@pytest.mark.slow
@given(tree_facts(), st.one_of(st.just(WIDE), st.integers(0, 120)), st.integers(0, 30))
def test_picture_fits_and_counts_everyone(facts: list[TreeFact], width: int, height: int) -> None:
    """Any tree, in any place: labels, tools and arguments may hold anything."""
    picture_is_sound(draw_picture, facts, width, height)


def _one_too_many(tree: LiveTree, pace: Pace, width: int, height: int) -> list[Line]:
    return draw_picture(tree, pace, width, height + 1)


def _one_too_wide(tree: LiveTree, pace: Pace, width: int, height: int) -> list[Line]:
    return draw_picture(tree, pace, width + 1, height)


def _raw_labels(tree: LiveTree, pace: Pace, width: int, height: int) -> list[Line]:
    labels = "".join(session.label for session in tree.sessions.values())
    lines = draw_picture(tree, pace, width, height)
    return [[(labels[:width], "")], *lines[1:]] if lines else lines


def _loses_one(tree: LiveTree, pace: Pace, width: int, height: int) -> list[Line]:
    lines = draw_picture(tree, pace, width, height)
    return lines if len(lines) < 4 else [lines[0], *lines[2:]]


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_one_too_many, _one_too_wide, _raw_labels, _loses_one])
def test_unsound_picture_is_found(bug: Draw) -> None:
    """The property fails on a line or a cell too many, on labels as they came, and on a session left out."""

    @settings(max_examples=300, deadline=None, database=None, phases=(Phase.generate,))
    @given(tree_facts(), st.one_of(st.just(WIDE), st.integers(0, 120)), st.integers(0, 30))
    def found(facts: list[TreeFact], width: int, height: int) -> None:
        picture_is_sound(bug, facts, width, height)

    with pytest.raises(AssertionError):
        found()


def grown(branches: int, workers: int) -> LiveTree:
    """Return a tree whose Branches are all done but the last two, and those but for two Workers."""
    facts: list[TreeFact] = [spawned("main")]
    for branch in range(1, branches + 1):
        name = f"main/b{branch}"
        below = [f"{name}/w{number}" for number in range(1, workers + 1)]
        facts.append(spawned(name, "main", f"folder {branch}"))
        facts += [spawned(each, name, None) for each in below]
        is_left = branch > branches - 2
        facts += [ended(each) for each in (below[2:] if is_left else below)]
        if not is_left:
            facts.append(ended(name, SessionStatus.FAILED if branch == 1 else SessionStatus.COMPLETED))
    return tree_of(*facts)


def test_finished_subtrees_collapse_into_one_line() -> None:
    """Of 111 sessions the seven that live are drawn; the others are counted, those that failed apart."""
    tree = grown(10, 10)
    tree.see("main/b9/w2", ToolExecutionStart("c1", "read", {"path": "a.txt"}))
    tree.expected = 90
    tree.count("main/b2/w1", 60)
    assert words_of(draw_picture(tree, PACE, 100, 24)) == [
        "session           kind    state    turns  files  calls",
        "main              main    active       0     60",
        "├─ b9 folder 9    branch  active       0      0",
        "│  ├─ w1          worker  active       0      0",
        '│  └─ w2          worker  calling      0      0  read {"path":"a.txt"}',
        "└─ b10 folder 10  branch  active       0      0",
        "   ├─ w1          worker  active       0      0",
        "   └─ w2          worker  active       0      0",
        "… 104 finished (1 failed)",
        "7 live, 104 ended · 60 of 90 files, 12 files/s · 1 min 15 s",
    ]


@pytest.mark.slow
def test_ten_thousand_sessions_fit_ten_lines() -> None:
    """What finds no room is counted; the totals always stand."""
    tree = tree_of(spawned("main"), *(spawned(f"main/w{number}", "main") for number in range(1, 10_000)))
    lines = words_of(draw_picture(tree, PACE, 80, 10))
    assert len(lines) == 10
    assert lines[-2:] == ["… 9,993 more live", "10,000 live, 0 ended · 1 min 15 s"]
    assert words_of(draw_picture(tree, PACE, 80, 1)) == lines[-1:]
    assert draw_picture(tree, PACE, 80, 0) == []


def test_waiting_approvals_and_long_silence_are_told() -> None:
    """What a person may have to do is in the totals, and in its session's row."""
    tree = tree_of(spawned("main"), requested("r1", "main", place="hall"))
    lines = words_of(draw_picture(tree, Pace(3700.0, None, 65.0), 120, 24))
    assert lines[1].endswith('waiting for approval      0  deploy {"place":"hall"}')
    assert lines[-1] == "1 live, 0 ended · 1 h 01 min · 1 approval waiting · nothing new for 1 min 05 s"


def test_tokens_and_cost_are_shown_where_there_are_any() -> None:
    """A session's own and the tree's; ended ones count; an unknown price is not zero."""
    tree = tree_of(
        spawned("main"),
        spawned("main/b1", "main"),
        spawned("main/w1", "main"),
        charged("main", 1200, 0.0125),
        charged("main", 300, 0.0025),
        charged("main/b1", 40, 0.0, unpriced=40),
        charged("main/w1", 500, 0.5, unpriced=1),
        ended("main/w1"),
        charged("main/w1", 0, 0.25),
    )
    pace = Pace(3.0)
    assert words_of(draw_picture(tree, pace, 100, 24)) == [
        "session  kind    state   turns  tokens     cost  calls",
        "main     main    active      0   1,500  $0.0150",
        "└─ b1    branch  active      0      40        ?",
        "… 1 finished",
        "2 live, 1 ended · 2,040 tokens · $0.7650 + unknown prices · 3 s",
    ]
    assert words_of(draw_picture(tree, pace, 40, 24))[:3] == [
        "session  state   tokens  calls",
        "main     active   1,500",
        "└─ b1    active      40",
    ]
    unpriced = tree_of(spawned("main"), charged("main", 7, 0.0, unpriced=7))
    assert words_of(draw_picture(unpriced, pace, 100, 24))[1:] == [
        "main     main  active      0       7",
        "1 live, 0 ended · 7 tokens · price unknown · 3 s",
    ]
    local = tree_of(spawned("main"), charged("main", 7, 0.0))
    assert words_of(draw_picture(local, pace, 100, 24))[-1] == "1 live, 0 ended · 7 tokens · $0.0000 · 3 s"


def test_finished_tree_shows_main_and_how_the_rest_ended() -> None:
    """An ended Main keeps its row."""
    tree = tree_of(spawned("main"), spawned("main/w1", "main"), ended("main/w1"), ended("main"))
    lines = words_of(draw_picture(tree, Pace(1.0, None, 99.0), 80, 24))
    assert lines[1:] == ["main     main  completed      0", "… 1 finished", "0 live, 2 ended · 1 s"]


def test_deep_tree_keeps_its_names_in_sight() -> None:
    """However deep a session is, its name is not pushed out of the line."""
    names = ["main"]
    for _ in range(40):
        names.append(f"{names[-1]}/b1")
    tree = tree_of(*(spawned(name, name.rpartition("/")[0] or None, "deep") for name in names))
    lines = words_of(draw_picture(tree, PACE, 80, 60))
    assert all("b1 deep" in line for line in lines[2:-1])


def test_long_labels_and_calls_share_a_line() -> None:
    """Neither takes the other's place: both are cut, and say so."""
    tree = tree_of(spawned("main", None, "label " * 50))
    tree.see("main", ToolExecutionStart("c1", "read", {"path": "p" * 500}))
    tree.see("main", ToolExecutionStart("c2", "read", {}))
    line = words_of(draw_picture(tree, PACE, 100, 24))[1]
    assert re.fullmatch(r"main (label )+\S*… +main +calling +0  \+1 more: read \{.*…", line)
