"""What a person decides on is what will run: all of it, and nothing an eye or a terminal misreads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.channels.safe_text import format_approval
from sessiontree.contracts.recorded.approvals import ApprovalRequest
from sessiontree.contracts.values.jsonable import dump_readable

Show = Callable[[ApprovalRequest], str]

REQUEST = ApprovalRequest("r1", "main/b1", "exec", {}, "d", "Elevated", 0, "main")
HIDDEN = (
    "\u200b\u200d\u202e\u2066\u3164\u115f\u2800\u00a0\u2028\ufeff\u00ad\ufe0f\U000e0041\x85\x07\x08\r\ud800"
)
SIGNS = st.sampled_from(
    [
        *HIDDEN,
        *'a \t\n\u0435"…',
        "\x1b[2K",
        "\x1b]8;;https://x\x1b\\",
        "\\u{200b}",
        "\\u200b",
        "\\n",
        "arguments: {}",
    ]
)
PARTS = st.lists(SIGNS, max_size=6)


def shows_what_runs(show: Show) -> None:
    """One line for the arguments, every sign of it visible; other arguments are shown otherwise."""

    @settings(max_examples=400, derandomize=True, database=None, phases=[Phase.generate])
    @given(PARTS, SIGNS, st.integers(0, 6), PARTS)
    def check(parts: list[str], sign: str, at: int, name: list[str]) -> None:
        called = "".join(name)
        one, other = ({"command": "".join(each)} for each in (parts, [*parts[:at], sign, *parts[at:]]))
        request = replace(REQUEST, arguments=one, session_id=f"main/{called}", tool=f"x{called}")
        shown = show(request)
        assert len(shown.splitlines()) == 3 + shown.count("\n  beware:")
        assert [each for each in shown if each in HIDDEN or not (each.isprintable() or each == "\n")] == []
        assert show(replace(request, arguments=other)) != shown

    check()


@pytest.mark.covers("REL-L1", "REL-L2", "REL-L5", "REL-L7")
@pytest.mark.slow
def test_prompt_shows_what_runs() -> None:
    """REL-L1, REL-L2, REL-L5, REL-L7: nothing trimmed, left out, hidden, or reported to the terminal."""
    shows_what_runs(format_approval)


def trimmed(request: ApprovalRequest) -> str:
    """Planted: white space at the ends of texts is left out."""
    plain = {
        name: value.strip() if isinstance(value, str) else value
        for name, value in dict(request.arguments).items()
    }
    return format_approval(replace(request, arguments=plain))


def raw(request: ApprovalRequest) -> str:
    """Planted: shown as it is."""
    return (
        f"{request.session_id} wants {request.tool}\n{dump_readable(request.arguments)}\n{request.request_id}"
    )


def without_the_invisible(request: ApprovalRequest) -> str:
    """Planted: what can't be seen is left out."""
    text = dump_readable(request.arguments)
    seen = "".join(sign for sign in text if sign.isprintable() and sign not in "\u3164\u115f\u2800\ufe0f")
    return f"who\n{seen}\nwhich"


def the_beginning(request: ApprovalRequest) -> str:
    """Planted: only the first characters."""
    return "\n".join(line[:40] for line in format_approval(request).splitlines())


@pytest.mark.covers("REL-L1", "REL-L4", "REL-L5")
@pytest.mark.parametrize("planted", [trimmed, raw, without_the_invisible, the_beginning])
def test_planted_deceit_is_found(planted: Show) -> None:
    """Each of them shows two calls alike, or lets a sign through."""
    with pytest.raises(AssertionError):
        shows_what_runs(planted)


@pytest.mark.covers("REL-L4")
def test_long_command_is_shown_to_its_end() -> None:
    """REL-L4: nobody approves a beginning: twenty thousand characters are all there, in one line."""
    command = "echo " + "x" * 20_000 + "; rm -rf /"
    shown = format_approval(replace(REQUEST, arguments={"command": command}))
    assert dump_readable({"command": command}) in shown
    assert len(shown.splitlines()) == 3


@pytest.mark.covers("REL-L6")
def test_writing_directions_are_spelt_out() -> None:
    """REL-L6: what would turn a line round is written as its number; letters of any script stay."""
    shown = format_approval(replace(REQUEST, arguments={"url": "https://ex\u0430mple.org/\u202egpj.exe"}))
    assert "\\u{202e}gpj.exe" in shown
    assert "ex\u0430mple.org" in shown
