"""Reports of what an author's code raised: frames, levels, texts that reach no terminal raw, memory."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from pathlib import Path

import pytest

from sessiontree.contracts.tools import author_errors
from sessiontree.contracts.tools.author_errors import (
    MAX_FRAMES,
    MAX_REMEMBERED,
    find_cause,
    list_frames,
    report_error,
)
from sessiontree.contracts.values.jsonable import to_json_value


def caught(text: str, depth: int = 0) -> ValueError:
    """Return an exception that passed through so many frames of this file."""

    def fall(left: int) -> None:
        if left:
            fall(left - 1)
        raise ValueError(text)

    try:
        fall(depth)
    except ValueError as error:
        return error
    raise AssertionError


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a new process does."""
    monkeypatch.setattr(author_errors, "_warned", {})
    author_errors._raised.clear()


def test_frames_are_the_authors_and_the_last_ones() -> None:
    """Python's own and installed files are left out, also where the exception was raised in one of them."""
    name = Path(__file__).name
    frames = list_frames(caught("deep", depth=50))
    assert len(frames) == MAX_FRAMES
    assert all(f"{name}:" in frame for frame in frames)
    assert frames[-1].endswith("in fall: raise ValueError(text)")
    try:
        json.loads("{")
    except ValueError as error:
        (frame,) = list_frames(error)
        assert name in frame
    try:
        to_json_value(object())
    except TypeError as error:
        assert all(name in frame for frame in list_frames(error))


def test_same_line_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A loop that fails again and again does not fill a screen; the others are there for who asks."""
    caplog.set_level(logging.DEBUG, "sessiontree")
    for _ in range(3):
        report_error("tool 'x' of session main", caught("boom"), "x failed: boom")
    assert [each.levelname for each in caplog.records] == ["WARNING", "DEBUG", "DEBUG"]


def test_log_holds_neither_text_nor_control_character(caplog: pytest.LogCaptureFixture) -> None:
    """The text of an exception may quote a model, a page or a key: its frames and its type are shown."""
    source = "raise ValueError('\x1b[2J' + chr(0x202e) + 'a secret' * 2)"
    try:
        exec(compile(source, "<cell \x1b[2J>", "exec"))  # noqa: S102 - a file name with a control character
    except ValueError as error:
        report_error("tool 'x' of session main", error, "x")
    told = logging.Formatter().format(caplog.records[0])
    assert "<cell \\x1b[2J>" in told
    assert "a secreta secret" not in told
    assert [each for each in told if not each.isprintable() and each not in "\n\t"] == []


def test_withheld_text_is_not_quoted(caplog: pytest.LogCaptureFixture) -> None:
    """What a hook raised may hold parts of a result: only its type and its lines are shown."""
    report_error("hook 'h' at after_tool_call", caught("the secret"), "it raised ValueError", quotes=False)
    told = logging.Formatter().format(caplog.records[0])
    assert "raised ValueError" in told
    assert "in fall" in told
    assert "secret" not in told
    assert find_cause("it raised ValueError") is None


def test_what_is_remembered_is_bounded_and_holds_no_variables() -> None:
    """The newest exceptions are found by what was reported of them; nothing that a frame held lives on."""

    class Big:
        """Something that must not live on."""

    def work() -> None:
        big = Big()
        seen.append(weakref.ref(big))
        raise ValueError("it is full")

    seen: list[weakref.ref[Big]] = []
    try:
        work()
    except ValueError as error:
        report_error("tool 'work'", error, "work failed: it is full")
    gc.collect()
    assert seen[0]() is None
    found = find_cause("the model failed: work failed: it is full")
    assert isinstance(found, ValueError)
    for number in range(MAX_REMEMBERED):
        report_error("tool 'x'", caught(str(number)), f"x failed: {number}")
    assert find_cause("work failed: it is full") is None
    assert find_cause(f"x failed: {MAX_REMEMBERED - 1}") is not None
