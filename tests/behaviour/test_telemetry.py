"""A tree's trace reaches a collector whole, from one process, without secrets, and disturbs no tree."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sessiontree import ConfigError, Runtime, ScriptedModel, SessionTree, StoredTrees, Telemetry
from sessiontree.runtime.telemetry import tree_tracer
from sessiontree.runtime.telemetry.json_log import JsonLines
from tests.behaviour.collector_fakes import SECRET, Collector, Received
from tests.behaviour.traced_program import KEY
from tests.behaviour.tree_fixtures import Opener

PROGRAM = "tests.behaviour.traced_program"
MOST_S = 120.0
PATIENT = {"TRACED_PATIENCE_S": "60"}
"""For a program whose every span must arrive, however busy the machine is."""
SLOW_S = 60.0
"""Longest time of a short program whose collector never answers; it waits for the collector for 5 s."""


def run(environment: Mapping[str, str], *words: str | Path) -> tuple[str, int, list[int], str]:
    """Run the program; return its tree's id, its process, processes that hold the secret, and its errors."""
    command = [sys.executable, "-m", PROGRAM, *map(str, words)]
    given = {**os.environ, **environment}
    ended = subprocess.run(command, env=given, capture_output=True, text=True, timeout=MOST_S, check=False)
    assert ended.returncode == 0, ended.stderr
    tree_id, own, seen = ended.stdout.splitlines()
    return tree_id, int(own.split()[0]), [int(pid) for pid in seen.split()[1:]], ended.stderr


def check_whole(spans: list[Received]) -> dict[str, Received]:
    """One trace, every span once, and every parent there; return the spans by id."""
    assert len({span.trace_id for span in spans}) == 1
    found = {span.span_id: span for span in spans}
    assert len(found) == len(spans)
    for span in spans:
        assert not span.parent_id or span.parent_id in found, span.name
        assert span.start_ns <= span.end_ns
    return found


def above(span: Received, found: Mapping[str, Received]) -> list[str]:
    """Return the names of the spans above one, from the nearest on."""
    names = []
    while span.parent_id:
        span = found[span.parent_id]
        names.append(span.name.split(" ")[0])
    return names


def held(place: Path, secret: str) -> list[str]:
    """Return the files beneath a place that hold a text."""
    return [str(path) for path in place.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


@pytest.mark.parametrize("backend", ["local", pytest.param("ray", marks=pytest.mark.slow)])
def test_tree_is_one_trace_over_its_processes_and_lives(backend: str, tmp_path: Path) -> None:
    """Children, an approval, a failure and a resumed tree: one trace with the right parents, in order."""
    places = (backend, tmp_path / "workspace", tmp_path / "state")
    places[1].mkdir()
    with Collector() as collector:
        environment = PATIENT | collector.environment()
        tree_id, own, holders, _ = run(environment, *places)
        before = len(collector.spans)
        check_whole(collector.spans)
        run(environment, *places, tree_id)
    found = check_whole(collector.spans)
    assert 0 < before < len(found)
    names = Counter(span.name for span in found.values())
    assert names["execute_tool deploy"] == 2
    assert names["session tree"] == 2, "one part for each life of the tree"
    chats = [span for span in found.values() if span.name == "chat function"]
    assert {above(span, found)[0] for span in chats} == {"turn"}
    (first, second) = sorted(
        (s for s in found.values() if s.name == "execute_tool deploy"), key=lambda s: s.start_ns
    )
    for span in (first, second):
        assert above(span, found) == ["turn", "invoke_agent", "invoke_agent", "session"]
        assert span.events[0] == "approval.wanted"
        assert {"approval.decided", "effect.intended"} <= set(span.events)
        assert span.attributes["sessiontree.call.outcome"] == "ok"
    failed = {span.attributes.get("sessiontree.session.id") for span in found.values() if span.failed}
    assert failed == {"main/w2", "main/w4"}
    ended = [
        span for span in found.values() if span.attributes.get("sessiontree.session.status") == "completed"
    ]
    assert {span.name for span in ended} == {"invoke_agent default", "session tree"}
    (rest,) = [span for span in found.values() if span.name == "session tree" and span.links]
    assert found[rest.links[0]].name == "session tree"
    assert {span.attributes["gen_ai.conversation.id"] for span in found.values()} == {tree_id}
    assert collector.service == "sessiontree"
    assert set(collector.headers) == {f"Bearer {collector.secret}"}
    assert SECRET.encode() not in collector.text, "contents are exported on request only"
    assert set(holders) == {own}, "the exporter's headers stay in the program"


def test_program_that_dies_leaves_a_trace_that_its_tree_continues(tmp_path: Path) -> None:
    """What was open keeps its id; what may not have been exported comes again, equal in everything."""
    places = ("local", tmp_path / "workspace", tmp_path / "state")
    places[1].mkdir()
    environment = {"OTEL_BSP_SCHEDULE_DELAY": "10"} | PATIENT
    with Collector() as collector:
        environment |= collector.environment()
        tree_id, *_ = run(environment, *places, "die")
        run(environment, *places, tree_id)
    once = {span.span_id: span for span in collector.spans}
    assert all(once[span.span_id] == span for span in collector.spans)
    found = check_whole(list(once.values()))
    names = Counter(span.name for span in found.values())
    assert names["session tree"] == 1
    assert names["execute_tool deploy"] == 2
    assert names["invoke_agent default"] == 7, "Main, and two Workers and a Branch of each life"


@pytest.mark.parametrize("collector", [Collector(500), Collector(stalls=True)], ids=["refuses", "stalls"])
def test_collector_that_does_not_work_disturbs_no_tree(collector: Collector, tmp_path: Path) -> None:
    """The tree runs, closing waits a bounded time, and the loss is reported with a count and no secret."""
    places = ("local", tmp_path / "workspace", tmp_path / "state")
    places[1].mkdir()
    with collector:
        began = time.monotonic()
        _, _, _, errors = run(collector.environment(), *places)
        assert time.monotonic() - began < SLOW_S
    assert "spans were not delivered" in errors
    assert SECRET not in errors


MALFORMED = {
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization {SECRET}",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"a=b,Bearer: {SECRET}",
    "OTEL_RESOURCE_ATTRIBUTES": SECRET,
}


@pytest.mark.short(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MALFORMED))
def test_malformed_variable_is_refused_and_never_shown(name: str, tmp_path: Path) -> None:
    """The library would quote it, and a token may be in it."""
    (tmp_path / "workspace").mkdir()
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", name: MALFORMED[name]}
    _, _, _, errors = run(variables, "local", tmp_path / "workspace", tmp_path / "state")
    assert "trees are not traced: telemetry: the OTEL_* variables can't be used (ValueError)" in errors
    assert SECRET not in errors


async def test_program_s_own_provider_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its processors get the spans, on every backend the same; contents only if asked for, and redacted."""
    monkeypatch.setattr(tree_tracer, "CLOSE_WAIT_S", MOST_S)
    for content in (False, True):
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        asked = Telemetry(provider=provider, content=content)
        async with Runtime(tmp_path / f"state{content}", backend="local", telemetry=asked) as runtime:
            with provider.get_tracer("test").start_as_current_span("the program's"):
                tree = SessionTree(tmp_path, model=ScriptedModel([f"my key is {SECRET}"]), runtime=runtime)
                async with tree:
                    await tree.main.send("tell me the key")
        spans = exporter.get_finished_spans()
        (root,) = [span for span in spans if span.name == "session tree"]
        (outer,) = [span for span in spans if span.name == "the program's"]
        assert [link.context for link in root.links] == [outer.context]
        shown = "".join(span.to_json() for span in spans)
        assert SECRET not in shown
        assert ("my key is" in shown) == content
        assert ("tell me" in shown) == content


async def test_provider_that_fails_disturbs_no_tree(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A processor that raises costs its spans, which are counted."""

    class Broken(SimpleSpanProcessor):
        def on_end(self, span: object) -> None:
            raise RuntimeError(SECRET)

    provider = TracerProvider()
    provider.add_span_processor(Broken(InMemorySpanExporter()))
    runtime = Runtime(tmp_path / "state", backend="local", telemetry=Telemetry(provider=provider))
    async with runtime, SessionTree(tmp_path, model=ScriptedModel(["here"]), runtime=runtime) as tree:
        assert await tree.main.send("hello") == "here"
    assert "spans were not delivered" in caplog.text
    assert SECRET not in caplog.text


async def test_nothing_is_traced_unless_somebody_asks(open_tree: Opener) -> None:
    """Without a provider and without variables nothing of OpenTelemetry's SDK runs, and no file is made."""
    async with open_tree.elsewhere("plain")(ScriptedModel(["here"])) as tree:
        assert await tree.main.send("hello") == "here"
        assert not list(tree.state_dir.rglob("traces"))


@pytest.mark.parametrize("wrong", [7, "yes", Telemetry(provider=7), Telemetry(content="all")])  # type: ignore[arg-type]
def test_wrong_settings_are_refused(wrong: object, tmp_path: Path) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match="telemetry"):
        Runtime(tmp_path / "state", backend="local", telemetry=wrong)  # type: ignore[arg-type]


async def test_erasing_a_tree_erases_what_is_known_of_its_trace(tmp_path: Path) -> None:
    """The file of marks goes with the tree."""
    provider, state = TracerProvider(), tmp_path / "state"
    runtime = Runtime(state, backend="local", telemetry=Telemetry(provider=provider))
    async with runtime, SessionTree(tmp_path, model=ScriptedModel(["here"]), runtime=runtime) as tree:
        await tree.main.send("hello")
    assert len(list((state / "traces").iterdir())) == 1
    await StoredTrees(state).erase(tree.tree_id)
    assert list((state / "traces").iterdir()) == []


@pytest.mark.covers("A22")
def test_log_lines_tell_of_a_tree_without_its_content(tmp_path: Path) -> None:
    """One JSON object for each span that ended, with ids, and what a tool says to people, without secrets."""
    places = ("local", tmp_path / "workspace", tmp_path / "state")
    places[1].mkdir()
    tree_id, _, _, errors = run({"SESSIONTREE_LOG": "json"}, *places)
    everything = [json.loads(line) for line in errors.splitlines()]
    lines = [line for line in everything if line["logger"] == "sessiontree.tree"]
    assert {line["tree"] for line in lines} == {tree_id}
    (deployed,) = [line for line in lines if line["message"] == "execute_tool deploy"]
    assert (deployed["session"], deployed["call"], deployed["outcome"]) == ("main/b1", "1.0", "ok")
    assert deployed["level"] == "INFO"
    assert deployed["display"].startswith("deployed staging with token=") and KEY not in errors
    assert "approval.decided" in deployed["events"]
    failed = {line["session"] for line in lines if line["level"] == "WARNING"}
    assert failed == {"main/w2"}
    assert SECRET not in errors
    run({"SESSIONTREE_LOG": ""}, *places, tree_id)


def test_log_lines_name_an_exception_by_its_type_alone() -> None:
    """Its text and its traceback may hold content."""
    record = logging.LogRecord("sessiontree", logging.ERROR, __file__, 1, "it broke: %d", (7,), None)
    try:
        raise ValueError(SECRET)
    except ValueError:
        record.exc_info = sys.exc_info()
    line = json.loads(JsonLines().format(record))
    assert (line["message"], line["exception"], line["level"]) == ("it broke: 7", "ValueError", "ERROR")
    assert SECRET not in repr(line)


def test_another_form_of_log_lines_is_refused(tmp_path: Path) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match="json"):
        Runtime(tmp_path / "state", backend="local", log="xml")  # type: ignore[arg-type]
