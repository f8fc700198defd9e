"""Whose fault a loss is: the run's, that of its neighbour, or the sample's own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from sessiontree import (
    AgentSpec,
    ConfigError,
    FunctionModel,
    Limits,
    ModelRequest,
    ProviderModel,
    script_call,
)
from sessiontree.bench import Attempt
from sessiontree.bench.ledger.failure_kinds import FAULTS, MEANINGS, FailureKind
from sessiontree.bench.run import preflight, provider_gate
from sessiontree.contracts.errors import ConfinementUnavailable
from sessiontree.sandbox import CommandConfinement
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.system.bench.run.poison_program import POISON, SAMPLES
from tests.system.bench.suite_fixtures import Heard, ended, exact, rows, solve, suite

MODEL, KEY = "openai:gpt-5", "sk-sentinel-8vB2"
DOCS = Path(__file__).parents[4] / "docs" / "failures.md"
BARE: dict[str, Any] = {"builtin_tools": False, "limits": Limits(model_retries=0)}


@pytest.mark.slow
async def test_poison_sample_is_found_and_charged_alone(tmp_path: Path) -> None:
    """It ends its program at every attempt. The same command, started again, scores all the others."""
    codes: list[int] = []
    while not codes or (codes[-1] == 3 and len(codes) < 9):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.system.bench.run.poison_program", str(tmp_path / "run"))
        )
        codes.append(await program.wait())
    assert codes == [3, 3, 3, 0]  # with its neighbours, then twice alone: more than one retry
    found = rows(tmp_path / "run", "SELECT sample_id, state, failures FROM samples WHERE state != 'scored'")
    assert found == [(POISON, "failed", 2)]
    assert rows(tmp_path / "run", "SELECT count(*) FROM scores WHERE passed") == [(SAMPLES - 1,)]
    charged = rows(tmp_path / "run", "SELECT sum(failures) FROM samples WHERE sample_id != ?", POISON)
    assert charged == [(0,)]
    kinds = rows(tmp_path / "run", "SELECT failure FROM attempts WHERE sample_id = ? ORDER BY number", POISON)
    assert kinds == [("driver",), ("driver",), ("crash",)]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a provider again at once."""
    monkeypatch.setattr(provider_gate, "FIRST_WAIT_S", 0.05)


def asking(fake: FakeProvider, **options: Any) -> dict[str, Any]:
    """Return a suite's options for a provider."""
    model = ProviderModel(MODEL, api_key=KEY, base_url=fake.url("openai"))
    return {"model": model, "tree": BARE, "scorers": said_done, **options}


def said_done(attempt: Attempt[str]) -> bool:
    """Expect the provider's word."""
    return attempt.output == "done"


@pytest.mark.usefixtures("impatient")
async def test_provider_that_does_not_answer_pauses_the_run(tmp_path: Path) -> None:
    """Nothing is leased, charged or scored meanwhile; the run says so, and goes on once it answers."""
    broken = FakeReply(status=500)
    replies = [FakeReply("ready"), FakeReply("done"), broken, broken, broken, FakeReply("ready")]
    heard = Heard()
    async with FakeProvider([*replies, FakeReply("done")]) as fake:
        found = await ended(suite(3, **asking(fake)), tmp_path / "run", heard, concurrency=1)
    assert (found.scored, found.passed, found.failed) == (3, 3, 0)
    assert rows(tmp_path / "run", "SELECT max(failures), max(attempts) FROM samples") == [(0, 2)]
    assert rows(tmp_path / "run", "SELECT failure FROM attempts WHERE outcome = 'error'") == [("provider",)]
    assert [line for line in heard.lines if line.startswith("paused: the provider does not answer")]
    assert [line for line in heard.lines if line.startswith("the provider answers again")]


@pytest.mark.usefixtures("impatient")
async def test_provider_that_stays_away_ends_the_run(tmp_path: Path) -> None:
    """With its reason; every sample waits, and the same command goes on."""
    broken = FakeReply(status=500)
    async with FakeProvider([FakeReply("ready"), broken, broken, broken]) as fake:
        options = asking(fake)
        with pytest.raises(ConfigError, match=r"the provider does not answer: .*the same command goes on"):
            await ended(suite(3, **options), tmp_path / "run", provider_wait_s=0.2)
    assert rows(tmp_path / "run", "SELECT DISTINCT state, failures FROM samples") == [("waiting", 0)]


@pytest.mark.parametrize("status", [401, 404])
async def test_model_that_is_not_there_is_found_before_the_first_sample(tmp_path: Path, status: int) -> None:
    """It costs one question, and no sample."""
    async with FakeProvider([FakeReply(status=status, error="no such thing")]) as fake:
        with pytest.raises(ConfigError, match=r"no sample was begun: .*no such thing"):
            await ended(suite(3, **asking(fake)), tmp_path / "run")
        assert fake.counts.requests == 1
    assert rows(tmp_path / "run", "SELECT 1 FROM attempts") == []


@pytest.mark.usefixtures("impatient")
async def test_sample_that_its_provider_fails_alone_is_charged(tmp_path: Path) -> None:
    """The provider answers a plain question each time: the second loss is the sample's own."""
    broken = FakeReply(status=500)
    ready = FakeReply("ready")
    async with FakeProvider([ready, broken, ready, broken, ready]) as fake:
        found = await ended(suite(1, **asking(fake)), tmp_path / "run", retries=0)
    assert (found.scored, found.failed) == (0, 1)


def unconfined() -> CommandConfinement:
    """Return what a machine without bubblewrap says."""
    return CommandConfinement(None, "landlock-7", ConfinementUnavailable("bwrap is missing", "install it"))


async def test_machine_that_cannot_confine_commands_is_found_before_the_first_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the trees hold commands; a suite without them runs."""
    monkeypatch.setattr(preflight, "command_confinement", unconfined)
    with pytest.raises(
        ConfigError, match=r"no sample was begun.*bwrap is missing.*or leave the tool exec out"
    ):
        await ended(suite(2), tmp_path / "run")
    assert rows(tmp_path / "run", "SELECT 1 FROM attempts") == []
    assert (await ended(suite(2, tree={"builtin_tools": False}), tmp_path / "other")).passed == 2


async def test_full_disk_is_found_before_the_first_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named."""
    monkeypatch.setattr(preflight, "LEAST_FREE", 2**60)
    with pytest.raises(ConfigError, match=r"the disk of '.*' has .* MiB free.*make room there"):
        await ended(suite(2), tmp_path / "run")


async def test_command_that_could_not_be_confined_is_not_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the look before the first sample can't know: the run ends, and nothing is scored."""

    def refuse() -> str:
        raise ConfinementUnavailable("bwrap is missing", "install it")

    monkeypatch.setattr("sessiontree.sandbox.commands.command_shell.find_bubblewrap", refuse)
    monkeypatch.setattr(preflight, "needs_commands", lambda _: False)

    def reply(request: ModelRequest) -> Any:
        return script_call("exec", command="echo 42") if request.turn == 1 else "it was refused"

    agent = AgentSpec(prompt="Work.")
    with pytest.raises(ConfigError, match="bwrap is missing"):
        await ended(suite(3, solver=agent, model=FunctionModel(reply)), tmp_path / "run")
    assert rows(tmp_path / "run", "SELECT 1 FROM scores") == []
    assert rows(tmp_path / "run", "SELECT DISTINCT failure FROM attempts WHERE outcome = 'error'") == [
        ("confinement",)
    ]
    assert rows(tmp_path / "run", "SELECT max(failures) FROM samples") == [(0,)]


async def test_undecided_is_neither_0_nor_left_out(tmp_path: Path) -> None:
    """It counts in the coverage, and in no rate."""

    async def broken(attempt: Attempt[str]) -> str:
        if attempt.sample.id == "s0":
            raise KeyError("planted")
        return await solve(attempt)

    results = await suite(4, solver=broken, scorers=exact).run(tmp_path / "run", backend="local")
    counts, report = results.counts, results.report()
    assert (counts.scored, counts.undecided, counts.total, counts.coverage) == (3, 1, 4, 0.75)
    assert report.overall.pass_rate.value == 1.0
    assert report.to_json()["coverage"] == 0.75
    assert "coverage 75.0%" in report.render_summary()[0]
    assert [group.kind for group in report.failures] == ["undecided: KeyError"]
    table = results.to_arrow("samples").to_pylist()
    assert next((row["status"], row["passed"]) for row in table) == ("error", None)


def test_table_of_failure_kinds_is_whole() -> None:
    """Every kind has a fault and a meaning, and the page says the same."""
    assert set(FAULTS) == set(MEANINGS) == set(FailureKind)
    page = DOCS.read_text("utf-8")
    for kind in FailureKind:
        assert f"| `{kind}` | {kind.fault} | {MEANINGS[kind]} |" in page
