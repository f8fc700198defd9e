"""What a program that a model writes costs: its calls, its children, its journal, and its way back.

Trees on the local backend with scripted models; every figure of a program has the whole way inside the clock.

- `call_us`: one ReadOnly call of a program, of 500 that follow each other. `turn_us`: the same calls as turns
  of a scripted model. `bare_us`: the same program in the bare interpreter, which answers at once.
- `map_per_s`: sessions a second of one `map` of 1,000 Workers by a program; `handle_map_per_s`: by
  `handle.map` with as many at a time.
- `answer_bytes`: bytes of the journal for each answer of a program with 10, and with 1,000 calls open at a
  time; `ratio` is the second over the first.
- `recovery_ms`: how long an interpreter that runs takes for a program with 1,000 recorded answers, from its
  text to its next call.
- `waiting_kib`: KiB of this process for each Branch whose program waits for a person, the Branch included; no
  interpreter is left.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pydantic_monty

from benchmarks.report import Figure, Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import (
    FunctionModel,
    Limits,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    ScriptedModel,
    SessionTree,
    ToolCall,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.facts import RunFinished
from sessiontree.programs.interpreter_process import InterpreterProcess
from sessiontree.programs.orders import order_opening
from sessiontree.programs.signatures import build_face
from sessiontree.runtime.runner.calls.program_runs import ANSWERS_AT_ONCE, IDLE_S

ROUNDS, QUICK_ROUNDS = 5, 1
CALLS, QUICK_CALLS = 500, 50
CHILDREN, QUICK_CHILDREN = 1_000, 20
AT_ONCE: Final = 16
WIDE: Final = Limits(
    max_turns=10_000, max_children=10_000, max_live=10_000, max_total=100_000, max_open_approvals=1_000
)
POLICY: Final = PolicyConfig(tools=ToolPolicy(allow=("program", "look", "hold", "sessions_spawn")))
LOOP: Final = "for number in range({calls}):\n    await look(n=number)\nlen('done')"
FAN: Final = (
    "import asyncio\nfound = await asyncio.gather(*[look(n=number) for number in range({calls})])\nlen(found)"
)
MAP: Final = "found = await map('worker', [str(number) for number in range({children})])\nlen(found)"


@tool(tier=PermissionTier.ELEVATED)
def hold(n: int) -> int:
    """Wait for a person, then return the number."""
    return n


@tool(tier=PermissionTier.READ_ONLY)
def look(n: int) -> int:
    """Return the number."""
    return n


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the figures."""
    options = read_options((__doc__ or "").partition("\n")[0], arguments)
    show(asyncio.run(measure(options)), options)


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures, medians of the rounds."""
    rounds = Rounds()
    calls = QUICK_CALLS if options.quick else CALLS
    children = QUICK_CHILDREN if options.quick else CHILDREN
    for _ in range(QUICK_ROUNDS if options.quick else ROUNDS):
        rounds.begin()
        with tempfile.TemporaryDirectory(prefix="programs-") as place:
            folder = Path(place)
            rounds.add("call_us", await _call_us(folder / "calls", calls))
            rounds.add("turn_us", await _turn_us(folder / "turns", calls))
            rounds.add("bare_us", await asyncio.to_thread(_bare_us, calls))
            rounds.add("map_per_s", await _map_per_s(folder / "map", children))
            rounds.add("handle_map_per_s", await _handle_map_per_s(folder / "handle", children))
            for number in (10, 2 * calls):
                rounds.add(f"answer_bytes_{number}", await _answer_bytes(folder / f"b{number}", number))
            rounds.add("recovery_ms", await _replay_ms(2 * calls))
            rounds.add("waiting_kib", await _waiting_kib(folder / "waiting", QUICK_CHILDREN))
    names = ("call_us", "turn_us", "bare_us", "map_per_s", "handle_map_per_s", "recovery_ms", "waiting_kib")
    figures: dict[str, Figure] = {name: {"median": rounds.median(name)} for name in names}
    few, many = rounds.median("answer_bytes_10"), rounds.median(f"answer_bytes_{2 * calls}")
    figures["answer_bytes"] = {"of_10": few, f"of_{2 * calls}": many, "ratio": many / few}
    figures["call_over_bare"] = {"ratio": rounds.median("call_us") / rounds.median("bare_us")}
    figures["map_over_handle"] = {"ratio": rounds.median("map_per_s") / rounds.median("handle_map_per_s")}
    return figures


def _make(folder: Path) -> None:
    folder.mkdir()


def _model(code: str) -> FunctionModel:
    def reply(request: ModelRequest) -> Any:
        if request.session_id != "main":
            return "done"
        return script_call("program", code=code) if len(request.messages) == 1 else "over"

    return FunctionModel(reply)


async def _timed(folder: Path, model: Any, ask: Callable[[SessionTree], Any]) -> float:
    """Return the seconds of one request of a warm tree; its interpreters have started."""
    _make(folder)
    tree = SessionTree(
        folder,
        model=model,
        policy=POLICY,
        tools=[look, hold],
        state_dir=folder / "state",
        backend="local",
        limits=WIDE,
    )
    async with tree:
        await tree.main.call("program", {"code": "1"})
        began = time.perf_counter()
        await ask(tree)
        return time.perf_counter() - began


async def _call_us(folder: Path, calls: int) -> float:
    code = LOOP.format(calls=calls)
    spent_s = await _timed(folder, _model(code), lambda tree: tree.main.send("go"))
    return spent_s / calls * 1e6


async def _turn_us(folder: Path, calls: int) -> float:
    steps: list[str | ToolCall] = [*(script_call("look", n=number) for number in range(calls)), "over"]
    spent_s = await _timed(folder, ScriptedModel(steps), lambda tree: tree.main.send("go"))
    return spent_s / calls * 1e6


def _bare_us(calls: int) -> float:
    with pydantic_monty.Monty() as pool, pool.checkout(limits={"max_suspensions": 10 * calls}) as session:
        began = time.perf_counter()
        at: Any = session.feed_start(LOOP.format(calls=calls))
        while not isinstance(at, pydantic_monty.MontyComplete):
            if isinstance(at, pydantic_monty.FunctionSnapshot):
                at = at.resume({"future": ...})
            else:
                at = at.resume({number: {"return_value": 1} for number in at.pending_call_ids})
        return (time.perf_counter() - began) / calls * 1e6


async def _map_per_s(folder: Path, children: int) -> float:
    model = _model(MAP.format(children=children))
    return children / await _timed(folder, model, lambda tree: tree.main.send("go"))


async def _handle_map_per_s(folder: Path, children: int) -> float:
    tasks = [str(number) for number in range(children)]
    model = _model("1")
    return children / await _timed(
        folder, model, lambda tree: tree.main.map("worker", tasks, concurrency=AT_ONCE)
    )


async def _answer_bytes(folder: Path, calls: int) -> float:
    _make(folder)
    model = _model(FAN.format(calls=calls))
    async with SessionTree(
        folder,
        model=model,
        policy=POLICY,
        tools=[look, hold],
        state_dir=folder / "state",
        backend="local",
        limits=WIDE,
    ) as tree:
        await tree.main.send("go")
        size = 0
        async for record in tree.events():
            size += len(record.text) if '"key":"1.0/' in record.text else 0
            if any(isinstance(fact, RunFinished) for fact in record.facts):
                break
        return size / calls


async def _replay_ms(answers: int) -> float:
    """Return the milliseconds in which a running interpreter takes a program with its answers."""
    face = build_face(
        {"look": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}, ""
    )
    order = order_opening(LOOP.format(calls=answers + 1), face, seed="s")
    process = InterpreterProcess()
    await process.start()
    try:
        await process.ask("warm", {**order, "code": "1"})
        began = time.perf_counter()
        await process.ask("one", order)
        given = [[number, {"return_value": number}] for number in range(answers)]
        for at in range(0, answers, ANSWERS_AT_ONCE):
            await process.ask("one", {"op": "answer", "answers": given[at : at + ANSWERS_AT_ONCE]})
        return (time.perf_counter() - began) * 1000
    finally:
        process.end()
        await process.ended()


async def _waiting_kib(folder: Path, programs: int) -> float:
    """Return the KiB that a Branch holds whose program waits for a person; its interpreter has ended."""
    _make(folder)

    def reply(request: ModelRequest) -> Any:
        return script_call("program", code="await hold(n=await look(n=1))")

    async with SessionTree(
        folder,
        model=FunctionModel(reply),
        policy=POLICY,
        tools=[look, hold],
        state_dir=folder / "state",
        backend="local",
        limits=WIDE,
    ) as tree:
        tracemalloc.start()
        try:
            before = await _grown(tree, 0)
            for _ in range(programs):
                await tree.main.spawn("branch", "go")
            return (await _grown(tree, programs) - before) / programs / 1024
        finally:
            tracemalloc.stop()


async def _grown(tree: SessionTree, waiting: int) -> int:
    async for record in tree.events():
        if waiting and "ApprovalWaiting" in type(record.fact).__name__:
            waiting -= 1
        if not waiting:
            break
    await asyncio.sleep(IDLE_S + 1)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


if __name__ == "__main__":
    main()
