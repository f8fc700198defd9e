"""``sessiontree ask --model``: prose whose citations hold, what it cost, and how it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.cli.command_fixtures import Program
from tests.system.cli.provider_fixtures import KEY, Serve

QUESTION = "where is retry handled?"
MODEL = ("--model", "openai:gpt-5", "--limit", "1")
REPORT = {
    "text": json.dumps({"answers": True, "statement": "ask_again retries.", "sources": ["again.py#L1-L3"]})
}
ANSWER = {"text": 'The function "def ask_again" [again.py#L1-L3] retries\nat night [night.py#L4].'}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A small workspace that nobody has surveyed."""
    root = tmp_path / "place"
    root.mkdir()
    (root / "again.py").write_text('def ask_again():\n    """Retry a request."""\n    pass\n')
    return root


def test_model_answers_in_prose(program: Program, serve: Serve, place: Path) -> None:
    """The answer goes to the output, the tree's progress to the error output; nothing is left behind."""
    serve(REPORT, REPORT, ANSWER)
    done = program.call("ask", QUESTION, place, *MODEL)
    assert done.code == 0
    assert done.lines[:2] == ['The function "def ask_again" [again.py#L1-L3] retries', "at night."]
    assert done.lines[-1].startswith("(1 citation holds, 1 removed; 4 sessions; ")
    assert "$" in done.lines[-1]
    assert "started main/w1: worker 1 again.py#L1-L3" in done.err
    assert "started main/w2: worker 2 search" in done.err
    assert KEY not in done.out + done.err
    assert not (program.state_home / "sessiontree").exists()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=pytest.mark.long)])
def test_json_holds_the_answer_and_how_it_was_found(
    program: Program, serve: Serve, place: Path, backend: str
) -> None:
    """Over a survey's memory, on both backends: citations with whether they hold, usage, cost, sessions."""
    assert program.call("survey", place, "--backend", "local").code == 0
    serve(REPORT, REPORT, ANSWER)
    done = program.run("ask", QUESTION, place, *MODEL, "--json", "--backend", backend)
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    assert (found["question"], found["model"], found["removed"]) == (QUESTION, "openai:gpt-5", 1)
    assert found["answer"].endswith("retries\nat night.")
    assert found["citations"] == [
        {"path": "again.py", "first": 1, "last": 3, "ok": True},
        {"path": "night.py", "first": 4, "last": 4, "ok": False},
    ]
    assert [one["source"] for one in found["places"]] == ["again.py#L1-L3"]
    assert found["usage"]["turns"] == 3
    assert {one["kind"] for one in found["sessions"]} == {"main", "branch", "worker"}


def test_answer_without_a_citation_that_holds_is_not_supported(
    program: Program, serve: Serve, place: Path
) -> None:
    """It is shown as such, with the places that were read, and the exit code says so."""
    serve(REPORT, REPORT, {"text": "It is at night [night.py#L4]."})
    done = program.call("ask", QUESTION, place, *MODEL)
    assert done.code == 1
    assert done.lines[0] == "It is at night."
    assert (
        "not supported by the files: no citation of this answer holds; these places were read:" in done.lines
    )
    assert "again.py#L1-L3  function ask_again" in done.lines
    assert done.lines[-1].startswith("(0 citations hold, 1 removed; ")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--model", "openai:gpt-5"), "openai needs a key: set OPENAI_API_KEY"),
        (("--model", "openai"), "no model is called 'openai'"),
        (("--model", "ollama:small", "--limit", "0"), "--limit is 0"),
        (("--model", "ollama:small", "--max-cost", "-1"), "cost_usd"),
        (("--model", "ollama:small", "--backend", "abacus"), "backend 'abacus' is not one of"),
    ],
)
def test_model_that_cannot_be_asked_is_one_line(
    program: Program, place: Path, options: tuple[str, ...], error: str
) -> None:
    """The same line as from ``run``, and nothing begins."""
    program.environment["OPENAI_API_KEY"] = ""
    done = program.call("ask", QUESTION, place, *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("sessiontree: ConfigError: ")
    assert error in done.err
    assert len(done.err.splitlines()) == 1


def test_cost_needs_a_model(program: Program, place: Path) -> None:
    """A bound that nothing can reach is a slip."""
    done = program.call("ask", QUESTION, place, "--max-cost", "1")
    assert done.code == 2
    assert "name one with --model" in done.err


def test_provider_that_refuses_is_one_line(program: Program, serve: Serve, place: Path) -> None:
    """No answer, no key in the error, and the reason."""
    serve({"status": 401, "error": "no such key"})
    done = program.call("ask", QUESTION, place, *MODEL, "--json")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("sessiontree: SessionFailed: ")
    assert "no such key" in done.err
    assert KEY not in done.err


def test_spent_cost_ends_the_question(program: Program, serve: Serve, place: Path) -> None:
    """A question that may cost next to nothing has no answer."""
    serve(REPORT, REPORT, ANSWER)
    done = program.call("ask", QUESTION, place, *MODEL, "--max-cost", "0.000001", "--json")
    assert (done.code, done.out) == (1, "")
    assert "cost" in done.err
