"""What the cells of a notebook define reaches the processes of a tree on Ray, as it was when the tree opened.

All tests share one kernel and one runtime, as the cells of a notebook do. Long because both start only once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.notebooks.kernel_fixtures import CellError, Kernel

pytestmark = pytest.mark.slow

FIRST = """
import asyncio
import socket
import threading
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, field_validator
from typing_extensions import TypedDict

from sessiontree import (
    ApprovalAnswer, AsyncFunctionModel, ExecutionError, FunctionModel, PermissionTier, Rule, Runtime,
    ScriptedModel, SessionKind, SessionTree, Tool, ToolResult, script_call, sync, tool,
)

PLACE = Path({place!r})
workspace = PLACE / "workspace"
workspace.mkdir()
runtime = Runtime(PLACE / "state")

def opened(model=None, **options):
    return SessionTree(workspace, model=model or ScriptedModel(["done"]), runtime=runtime, **options)
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel whose first cell imported what all use and chose a runtime."""
    with Kernel() as kernel:
        kernel.run(FIRST.format(place=str(tmp_path_factory.mktemp("cells"))))
        yield kernel
        kernel.run("await runtime.close()")


def test_results_are_of_the_types_a_cell_defines(kernel: Kernel) -> None:
    """A model, a dataclass and a TypedDict, one in the other: schema there, values here."""
    shown = kernel.value(
        """
        class Size(TypedDict):
            lines: int

        @dataclass
        class Place:
            name: "str"
            size: Size

        class Report(BaseModel):
            places: list[Place]

            @field_validator("places")
            @classmethod
            def _some(cls, places):
                assert places, "no places"
                return places

        answers = {
            "size": '{"lines": 3}',
            "place": '{"name": "north", "size": {"lines": 3}}',
            "report": '{"places": [{"name": "north", "size": {"lines": 3}}]}',
            "wrong": '{"lines": "many"}',
        }
        async with opened(FunctionModel(lambda request: answers[request.messages[0].text])) as tree:
            size, place, report = [
                (await (await tree.main.spawn("branch", task, result_type=wanted)).result()).output
                for task, wanted in (("size", Size), ("place", Place), ("report", Report))
            ]
            wrong = await (await tree.main.spawn("worker", "wrong", result_type=Size)).result()
        [
            size == {"lines": 3},
            place == Place("north", size),
            report == Report(places=[place]),
            type(report.places[0]) is Place,
            str(wrong.status),
        ]
        """
    )
    assert shown == [True, True, True, True, "failed"]


@pytest.mark.covers("C13")
def test_tool_and_all_it_uses_come_from_cells(kernel: Kernel) -> None:
    """Class, parameters, enum, nested types, functions and constants; called by model, program and Worker."""
    kernel.run(
        """
        UNITS = {"line": 1, "page": 50}

        class Unit(Enum):
            LINE = "line"
            PAGE = "page"

        class Amount(BaseModel):
            count: int
            unit: Unit = Unit.LINE

            @field_validator("count")
            @classmethod
            def _positive(cls, count):
                assert count > 0, "nothing to measure"
                return count

        class MeasureParams(BaseModel):
            amount: Amount
            rounds: Literal["up", "down"] = "up"

        def lines_of(amount):
            return amount.count * UNITS[amount.unit.value]

        class Measure(Tool[MeasureParams]):
            name = "measure"
            description = "Measure something."
            Params: ClassVar = MeasureParams
            tier = PermissionTier.READ_ONLY
            kinds = frozenset(SessionKind)

            async def execute(self, params, ctx):
                return ToolResult(f"{ctx.session_id}: {lines_of(params.amount)} {params.rounds}")
        """
    )
    shown = kernel.value(
        """
        asked = script_call("measure", amount={"count": 2, "unit": "page"})

        def measuring(request):
            return asked if request.turn == 1 else request.messages[-1].text

        async with opened(FunctionModel(measuring), tools=[Measure()]) as tree:
            worker, branch = [await tree.main.spawn(kind, "go") for kind in ("worker", "branch")]
            told = [(await child.result()).summary for child in (worker, branch)]
            told.append((await tree.main.call("measure", {"amount": {"count": 1}, "rounds": "down"})).text)
            try:
                await tree.main.call("measure", {"amount": {"count": 0}})
            except Exception as error:
                told.append(type(error).__name__ + str("nothing to measure" in str(error)))
        told
        """
    )
    assert shown == ["main/w1: 100 up", "main/b1: 100 up", "main: 1 down", "ValidationErrorTrue"]


def test_function_tool_takes_types_of_a_cell(kernel: Kernel) -> None:
    """The signature's model, TypedDict and enum are made of the arguments where the tool runs."""
    shown = kernel.value(
        """
        class Axis(Enum):
            X = "x"
            Y = "y"

        class Point(BaseModel):
            x: int
            y: int = 0

        class Style(TypedDict, total=False):
            bold: bool

        @tool(tier=PermissionTier.READ_ONLY)
        def along(point: Point, style: Style, axis: Axis = Axis.Y) -> dict[str, int | Style]:
            '''Look along an axis.

            Args:
                point: Where.
                style: How.
                axis: Which way.
            '''
            assert type(point) is Point and type(axis) is Axis
            return {"at": getattr(point, axis.value), "style": style}

        async with opened(tools=[along]) as tree:
            given = {"point": {"x": 4}, "style": {"bold": True}, "axis": "x"}
            output = (await tree.main.call("along", given)).output
        output
        """
    )
    assert shown == {"at": 4, "style": {"bold": True}}


def test_function_tool_takes_a_dataclass_of_a_cell(kernel: Kernel) -> None:
    """With and without defaults."""
    shown = kernel.value(
        """
        @dataclass
        class Place:
            x: int
            y: int = 0

        @tool(tier=PermissionTier.READ_ONLY)
        def beside(place: Place) -> Place:
            '''Look beside a place.

            Args:
                place: Where.
            '''
            return Place(place.x + 1, place.y)

        async with opened(tools=[beside]) as tree:
            output = (await tree.main.call("beside", {"place": {"x": 4}})).output
        output
        """
    )
    assert shown == {"x": 5, "y": 0}


def test_tool_sees_the_variables_as_they_were_when_its_tree_opened(kernel: Kernel) -> None:
    """A cell run later reaches the next tree, not this one; what a tool changes, it changes for itself."""
    kernel.run(
        """
        factor, calls = 2, []

        @tool(tier=PermissionTier.READ_ONLY)
        def times(number: int) -> list[int]:
            '''Multiply.

            Args:
                number: What.
            '''
            calls.append(number)
            return [number * factor, len(calls)]

        first = await opened(tools=[times]).start()
        """
    )
    assert kernel.value("(await first.main.call('times', {'number': 5})).output") == [10, 1]
    kernel.run("factor = 3; calls.append(0)")
    assert kernel.value("(await first.main.call('times', {'number': 5})).output[0]") == 10
    second = kernel.value(
        """
        async with opened(tools=[times]) as tree:
            output = (await tree.main.call("times", {"number": 5})).output
        await first.close()
        [output, calls]
        """
    )
    assert second == [[15, 2], [0]]


CELL = """
class Greeting(Tool[Whom]):
    name = "greet"
    description = "Greet somebody."
    Params: ClassVar = Whom
    tier = PermissionTier.READ_ONLY

    async def execute(self, params, ctx):
        return ToolResult(f"{words}, {{params.name}}")

@tool(tier=PermissionTier.READ_ONLY)
def part() -> str:
    'Say good-bye.'
    return "{words}, bye"
"""


def test_cell_run_again_defines_the_tool_of_the_next_tree(kernel: Kernel) -> None:
    """Same names, other bodies: an open tree keeps its own, a new one has the new, also on the same hosts."""
    kernel.run("class Whom(BaseModel):\n    name: str = 'you'")
    said = []
    for words in ("hello", "good day"):
        kernel.run(CELL.format(words=words))
        kernel.run(
            f"""
            greeting = {{**globals().get("greeting", {{}}),
                        {words!r}: await opened(tools=[Greeting(), part]).start()}}
            """
        )
        for _ in range(2):
            said += kernel.value(
                """
                [
                    (await tree.main.call(name)).text
                    for tree in greeting.values() for name in ("greet", "part")
                ]
                """
            )
    hello, day = ["hello, you", "hello, bye"], ["good day, you", "good day, bye"]
    assert said == hello * 2 + (hello + day) * 2
    kernel.run("for tree in greeting.values():\n    await tree.close()")


@pytest.mark.parametrize(
    ("holds", "named"),
    [
        ("lock = threading.Lock()", "lock"),
        pytest.param("line = socket.socket()", "socket", marks=pytest.mark.long),
        pytest.param("loop = asyncio.get_running_loop()", "", marks=pytest.mark.long),
        pytest.param("own = opened()", "", marks=pytest.mark.long),
        pytest.param("lines = (line for line in 'ab')", "generator", marks=pytest.mark.long),
    ],
)
def test_tool_that_cannot_travel_is_refused_by_its_name(kernel: Kernel, holds: str, named: str) -> None:
    """Whatever it holds: the error names the tool, the reason and the way out, and nothing is left open."""
    name = holds.partition(" ")[0]
    kernel.run(
        f"""
        {holds}

        @tool(tier=PermissionTier.READ_ONLY)
        def holding() -> str:
            'Hold something.'
            return repr({name})

        alone = SessionTree(
            workspace, model=ScriptedModel(["done"]), tools=[holding], state_dir=PLACE / "alone"
        )
        """
    )
    for start in ("alone", "opened(tools=[holding])"):
        with pytest.raises(CellError, match="can't pickle tool 'holding' for the processes") as refused:
            kernel.run(f"await {start}.start()")
        words = str(refused.value)
        assert refused.value.name == "ConfigError"
        assert named in words
        assert "keep locks, connections and loops out of it, or use backend='local'" in words
    assert kernel.value("(PLACE / 'alone').exists()") is False
    told = kernel.value(
        f"""
        async with SessionTree(
            workspace, model=ScriptedModel(["done"]), tools=[holding], backend="local",
            state_dir=PLACE / "here" / {name!r},
        ) as tree:
            text = (await tree.main.call("holding")).text
        async with opened() as tree:
            reply = await tree.main.send("still here?")
        {name} = holding = alone = None
        [len(text) > 0, reply]
        """
    )
    assert told == [True, "done"]


def test_model_that_cannot_travel_is_refused_too(kernel: Kernel) -> None:
    """Of either sort; the tools are not blamed."""
    kernel.run(
        """
        guard = threading.Lock()

        def guarded(request):
            with guard:
                return "done"

        async def guarded_later(request):
            return guarded(request)
        """
    )
    for model in ("FunctionModel(guarded)", "AsyncFunctionModel(guarded_later)"):
        with pytest.raises(CellError, match="ConfigError: can't pickle the model"):
            kernel.run(f"await opened({model}).start()")


def test_tool_that_does_not_arrive_fails_its_session_by_type(kernel: Kernel) -> None:
    """It was packed, and can't be opened elsewhere: the error says so; other trees go on."""
    told = kernel.value(
        """
        import os
        HERE = os.getpid()

        def only_here(pid):
            if os.getpid() != pid:
                raise LookupError("only where it was made")
            return "made"

        class Bound:
            def __reduce__(self):
                return only_here, (HERE,)

        bound = Bound()

        @tool(tier=PermissionTier.READ_ONLY)
        def using() -> str:
            'Use it.'
            return repr(bound)

        told = []
        async with opened(tools=[using]) as tree:
            child = await tree.main.spawn("branch", "go")
            result = await child.result()
            told += [str(result.status), "only where it was made" in result.summary]
        async with opened() as tree:
            told.append(await tree.main.send("and here?"))
        told
        """
    )
    assert told == ["failed", True, "done"]


def test_errors_of_a_cell_are_told_by_their_words(kernel: Kernel) -> None:
    """Raised in a tool, a model or an approver; of classes that no other process knows, or can make again."""
    told = kernel.value(
        """
        import logging

        logging.getLogger("sessiontree").addHandler(logging.NullHandler())  # what breaks is logged

        class Broken(Exception):
            def __init__(self, part, why):
                super().__init__(f"{part} is broken: {why}")
                self.guard = threading.Lock()

        class Refused(ExecutionError):
            def __init__(self, who, why):
                super().__init__(f"{who} refused: {why}")

        @tool(tier=PermissionTier.READ_ONLY)
        def break_down(how: str) -> str:
            '''Break.

            Args:
                how: By which error.
            '''
            raise Broken("the wheel", "rust") if how == "broken" else Refused("the wheel", "tired")

        @tool(tier=PermissionTier.ELEVATED)
        def launch() -> str:
            'Launch.'
            return "launched"

        def breaking(request):
            if request.session_id == "main/b1":
                raise Broken("the model", "age")
            return script_call("break_down", how="broken") if request.turn == 1 else request.messages[-1].text

        async def breaking_later(request):
            return breaking(request)

        def approve(request):
            raise Broken("the approver", "doubt")

        told = []
        for model in (FunctionModel(breaking), AsyncFunctionModel(breaking_later)):
            async with opened(model, tools=[break_down, launch], approver=approve) as tree:
                for name, given in (
                    ("break_down", {"how": "broken"}), ("break_down", {"how": "refused"}), ("launch", {})
                ):
                    try:
                        await tree.main.call(name, given)
                    except Exception as error:
                        told.append(f"{type(error).__name__}: {error}")
                told.append((await (await tree.main.spawn("branch", "go")).result()).summary)
                told.append((await (await tree.main.spawn("branch", "go")).result()).summary)
        told
        """
    )
    assert len(told) == 10
    for broken, refused, launched, modelled, read in (told[:5], told[5:]):
        assert broken.startswith("ExecutionError: ")
        assert "Broken: the wheel is broken: rust" in broken
        assert "the wheel refused: tired" in refused
        assert launched.startswith("PermissionDenied: ")
        assert "Broken: the approver is broken: doubt" in launched
        assert "Broken: the model is broken: age" in modelled
        assert "the wheel is broken: rust" in read


def test_requests_are_answered_by_what_cells_define(kernel: Kernel) -> None:
    """A function, a channel of a class of its own, and a person at the keyboard of the cell."""
    kernel.run(
        """
        @tool(tier=PermissionTier.ELEVATED)
        def launch(text: str) -> str:
            '''Launch.

            Args:
                text: What.
            '''
            return f"launched {text}"

        seen = []

        async def approve(request):
            seen.append(request.arguments["text"])
            return request.arguments["text"] != "no"

        class Channel:
            async def send(self, text):
                seen.append(text)

            async def ask(self, request):
                return ApprovalAnswer(await approve(request))

        async def launches(tree):
            told = []
            for text in ("yes", "no"):
                try:
                    told.append((await tree.main.call("launch", {"text": text})).text)
                except Exception as error:
                    told.append(type(error).__name__)
            return told
        """
    )
    rules = "approver=[Rule(where={'/text': 'y*'}, answer='approve')], channel=None"
    for options in ("approver=approve", "channel=Channel()", rules):
        told = kernel.value(
            f"""
            async with opened(tools=[launch], {options}) as tree:
                reported = await launches(tree)
            reported
            """
        )
        assert told == ["launched yes", "PermissionDenied"]
    assert kernel.value("seen") == ["yes", "no"] * 2


def test_sync_tree_of_a_cell_asks_at_the_keyboard(kernel: Kernel) -> None:
    """The cell blocks the loop, is asked by ``input()``, and streams; the async trees go on afterwards."""
    kernel.run(
        """
        @tool(tier=PermissionTier.ELEVATED)
        def fire(text: str) -> str:
            '''Fire.

            Args:
                text: At what.
            '''
            return f"fired at {text}"

        async def speak(request):
            return script_call("fire", text="will") if request.turn == 1 else request.messages[-1].text

        beside = await opened().start()
        blocking = sync.SessionTree(
            workspace, model=AsyncFunctionModel(speak), tools=[fire],
            channel=sync.TerminalChannel(), state_dir=PLACE / "sync",
        ).start()
        """
    )
    outcome = kernel.run("blocking.main.send('go')", "y")
    assert outcome.value == "fired at will"
    assert "main wants to call fire" in outcome.printed
    assert kernel.value("''.join(blocking.main.stream('more'))") == "more"
    with pytest.raises(CellError, match="PermissionDenied"):
        kernel.run("blocking.main.call('fire', {'text': 'you'})", "n")
    assert kernel.value("await beside.main.send('there?')") == "done"
    kernel.run("blocking.close(); await beside.close()")


def test_progress_of_a_tool_is_seen_while_it_runs(kernel: Kernel) -> None:
    """What it reports arrives at once, also from a host where nothing else happens."""
    told = kernel.value(
        """
        from sessiontree.contracts.reports.events import ToolExecutionUpdate

        @tool(tier=PermissionTier.READ_ONLY, kinds=SessionKind)
        async def watch(ctx) -> str:
            'Watch.'
            ctx.update({"watching": ctx.session_id})
            await asyncio.Event().wait()

        told = []
        async with opened(ScriptedModel({"*": [script_call("watch")]}), tools=[watch]) as tree:
            progress = tree.progress()
            child = await tree.main.spawn("worker", "go")
            try:
                async with asyncio.timeout(60):
                    while not told:
                        event = (await progress.next()).event
                        if isinstance(event, ToolExecutionUpdate):
                            told.append(event.partial)
            except TimeoutError:
                pass
            await child.cancel()
        told
        """
    )
    assert told == [{"watching": "main/w1"}]


def test_approver_named_in_main_is_passed_over(kernel: Kernel) -> None:
    """Functions by name are imported where sessions run, and cells are not there: the next one is asked."""
    told = kernel.value(
        """
        def allows(request):
            return "approve"

        @tool(tier=PermissionTier.ELEVATED)
        def launch() -> str:
            'Launch.'
            return "launched"

        def asks(request):
            if request.session_id == "main/b1" and request.turn == 1:
                return script_call("sessions_spawn", kind="branch", task="launch")
            if request.session_id == "main/b1/b1" and request.turn == 1:
                return script_call("launch")
            return request.messages[-1].text

        asked = []

        async def owner(request):
            asked.append(request.session_id)
            return False

        async with opened(FunctionModel(asks), tools=[launch], approver=owner) as tree:
            await (await tree.main.spawn("branch", "go", approver="__main__:allows")).result()
        asked
        """
    )
    assert told == ["main/b1/b1"]
