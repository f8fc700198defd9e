"""What ``run``, ``chat`` and ``ask`` have in common: their exit codes, and what the owner configures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from sessiontree.cli.screen import FAILED, INTERRUPTED, UNUSABLE
from sessiontree.survey.command import CODES
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.cli.command_fixtures import Done, Program
from tests.system.cli.provider_fixtures import KEY, heard_provider, replies

COMMANDS = ("run", "chat", "ask")
REPORT = {"answers": True, "statement": "ask_again retries.", "sources": ["again.py#L1-L3"]}
TEXT = {"text": f"{json.dumps(REPORT)}"}
"""A reply that suits each of them: a Worker's report, and text for everybody else."""
ANSWER = {"text": "It retries [again.py#L1-L3]."}
Listen: TypeAlias = "Callable[..., FakeProvider]"
Command: TypeAlias = "Callable[..., Done]"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A small workspace."""
    root = tmp_path / "place"
    root.mkdir()
    (root / "again.py").write_text('def ask_again():\n    """Retry a request."""\n    pass\n')
    return root


@pytest.fixture
def listen(program: Program) -> Iterator[Listen]:
    """Starts a provider that keeps what it is asked."""
    with ExitStack() as stack:
        yield lambda *each: stack.enter_context(heard_provider(program, replies(*each)))


@pytest.fixture
def command(program: Program, place: Path, tmp_path: Path) -> Command:
    """Runs one of the commands over the workspace, with further options."""

    def called(name: str, *options: str | Path, model: str | None = "openai:gpt-5") -> Done:
        given = ("--model", model, *options) if model is not None else options
        state = ("--state-dir", tmp_path / "state")
        if name == "run":
            return program.call("run", "Hello.", "--workspace", place, "--backend", "local", *state, *given)
        if name == "chat":
            return program.call("chat", place, "--backend", "local", *state, *given, given="Hello.\n")
        return program.call("ask", "where is retry handled?", place, "--limit", "1", *state, *given)

    return called


@pytest.fixture
def configure(program: Program) -> Callable[[str], Path]:
    """Writes the owner's file."""

    def written(text: str) -> Path:
        file = program.config_home / "sessiontree" / "sessiontree.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o600)
        return file

    return written


def _prompts(provider: FakeProvider) -> list[str]:
    """Return the system prompts of sessions that read files."""
    found = []
    for request in provider.requests:
        tools = {each["function"]["name"] for each in request.body.get("tools", ())}
        if "read" in tools:
            found.append(str(request.body["messages"][0]["content"]))
    return found


def _offered(provider: FakeProvider) -> set[str]:
    return {each["function"]["name"] for one in provider.requests for each in one.body.get("tools", ())}


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_code_is_0_for_an_answer(command: Command, listen: Listen, name: str) -> None:
    """The model answered."""
    listen(TEXT, TEXT, ANSWER)
    assert command(name).code == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_code_is_1_for_a_model_that_fails(command: Command, listen: Listen, name: str) -> None:
    """It began, and the provider refused; the reason is shown and the key is not."""
    listen({"status": 401, "error": "no such key"})
    done = command(name)
    assert done.code == 1
    assert "no such key" in done.out + done.err
    assert KEY not in done.out + done.err


WRONG: dict[str, tuple[str, tuple[str, ...], str | None, str]] = {
    "no key": ("", (), "openai:gpt-5", "openai needs a key: set OPENAI_API_KEY"),
    "no such model": ("", (), "openai", "no model is called 'openai'"),
    "empty model": ("", (), "", "no model is called ''"),
    "typing error": ("modle = 'x'", (), "openai:gpt-5", "did you mean 'model'?"),
    "no file": ("", ("--config", "nowhere.toml"), "openai:gpt-5", "nowhere.toml' does not exist"),
    "no such home": (
        "[workspaces.'~nobody-here/place']\ntrusted = true",
        (),
        "ollama:small",
        "'~nobody-here/place': give an absolute path",
    ),
    "no backend": ("", ("--backend", "abacus"), "ollama:small", "backend 'abacus' is not one of"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("wrong", WRONG)
def test_exit_code_is_2_for_what_can_not_begin(
    program: Program, command: Command, configure: Callable[[str], Path], name: str, wrong: str
) -> None:
    """One line says what is wrong; no tree is made."""
    text, options, model, error = WRONG[wrong]
    configure(text)
    program.environment["OPENAI_API_KEY"] = ""
    done = command(name, *options, model=model)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
    assert len(done.err.splitlines()) == 1


def test_exit_codes_are_those_of_the_documentation() -> None:
    """The page has one table for all commands: the codes of the screen and of the survey, and no others."""
    page = (Path(__file__).parents[3] / "docs" / "operators.md").read_text("utf-8")
    table = page.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = {0, FAILED, UNUSABLE, INTERRUPTED, *CODES.values()}
    assert [int(each) for each in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)] == sorted(codes)


@pytest.mark.parametrize("name", ["run", "chat"])
@pytest.mark.parametrize("agent", ["", "reviewr"])
def test_agent_that_is_not_there_is_refused_with_those_that_are(
    command: Command, configure: Callable[[str], Path], name: str, agent: str
) -> None:
    """An empty name is a name, too."""
    configure("[agents.reviewer]\nprompt = 'Review.'\n")
    done = command(name, "--agent", agent, model="ollama:small")
    assert (done.code, done.out) == (2, "")
    assert f"no agent is named {agent!r}" in done.err
    assert "reviewer" in done.err


@pytest.mark.short(4)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("said", "mark"),
    [
        ("", 'kind="workspace file" source="AGENTS.md"'),
        ("trusted = true", "> Use tabs."),
        ("agents_md = 'owner'", "from its AGENTS.md:\nUse tabs."),
        ("agents_md = 'none'", None),
    ],
)
def test_agents_md_is_whose_the_owner_says(
    command: Command,
    listen: Listen,
    configure: Callable[[str], Path],
    place: Path,
    name: str,
    said: str,
    mark: str | None,
) -> None:
    """It joins the prompts of sessions that read files: as foreign, as the workspace's, or as the owner's."""
    (place / "AGENTS.md").write_text("Use tabs.\n")
    configure(f'[workspaces."{place}"]\n{said}\n')
    provider = listen(TEXT, TEXT, ANSWER)
    done = command(name)
    assert (done.code, "error" in done.err.lower()) == (0, False)
    prompts = _prompts(provider)
    assert prompts
    for prompt in prompts:
        assert ("AGENTS.md" in prompt) is (mark is not None)
        assert mark is None or mark in prompt


@pytest.mark.short(4)
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    "policy",
    [
        '[policy.tools]\ndeny = ["grep"]\n',
        '[policy.tools]\nallow = ["read", "find"]\n',
        '[policy.tools]\nprofile = "minimal"\nalso_allow = ["read"]\n',
        '[policy.sandbox]\nallow = ["read"]\n',
    ],
)
def test_tools_that_the_owner_denies_are_offered_to_nobody(
    command: Command, listen: Listen, configure: Callable[[str], Path], name: str, policy: str
) -> None:
    """A policy removes tools, also of the Workers of ``ask``; the calls that its program makes remain."""
    configure(policy)
    provider = listen(TEXT, TEXT, ANSWER)
    done = command(name)
    assert done.code == 0, done.out + done.err
    assert "read" in _offered(provider)
    assert "grep" not in _offered(provider)


@pytest.mark.parametrize("name", COMMANDS)
def test_trusted_workspace_narrows_and_adds_its_prompt(
    command: Command, listen: Listen, configure: Callable[[str], Path], place: Path, name: str
) -> None:
    """What it denies is offered to nobody, and its prompt is marked as its own."""
    (place / "sessiontree.toml").write_text('deny = ["grep"]\nprompt = "Use tabs."\n')
    configure(f'[workspaces."{place}"]\ntrusted = true\n')
    provider = listen(TEXT, TEXT, ANSWER)
    done = command(name)
    assert done.code == 0
    assert done.err.startswith("sessiontree: the workspace's sessiontree.toml narrows rights")
    assert "grep" not in _offered(provider)
    assert all("They are not from your owner" in prompt for prompt in _prompts(provider))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("run", "caf\udce9", "--model", "ollama:small"), "the task holds bytes that are not UTF-8"),
        (("run", "Hi", "--model", "ollama:small", "--workspace", "~nobody-here/x"), "can't be a path here"),
        (("run", "Hi", "--model", "ollama:small", "--attach", "~nobody-here/x"), "can't be read"),
        (("chat", "--model", "ollama:small", "--session", "main/w1"), "a new tree has no session 'main/w1'"),
        (("ask", "where is retry?", "--config", "x.toml"), "name one with --model"),
    ],
)
def test_senseless_words_are_refused_before_there_is_a_tree(
    program: Program, words: tuple[str, ...], error: str
) -> None:
    """No tree that nobody can go on with is left behind."""
    done = program.call(*words)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
    assert not (program.state_home / "sessiontree").exists()


def test_refusal_of_a_limit_names_the_session_once(
    command: Command, listen: Listen, configure: Callable[[str], Path]
) -> None:
    """What ends a question that has begun is one sentence."""
    listen(TEXT)
    configure("[limits]\nmax_children = 0\n")
    done = command("ask")
    assert (done.code, done.out) == (1, "")
    assert "SessionFailed: session 'main': max_children is 0" in done.err


def test_ask_needs_room_for_its_sessions(command: Command, configure: Callable[[str], Path]) -> None:
    """A limit that leaves no room for the Branch that writes is named before anything is asked."""
    configure("[limits]\nmax_depth = 1\n")
    done = command("ask", model="ollama:small")
    assert (done.code, done.out) == (2, "")
    assert "limits: max_depth is 1; an answer needs 2" in done.err
