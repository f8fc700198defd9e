"""What the model gateway adds to a question, on Ray, over asking with the provider's own library.

All ask the same fake provider, a process of its own on loopback, in turn; medians of the rounds' medians.

- `direct_us`: OpenAI's library in this program: from the request to the end of its stream, of one delta. It
  sends the conversation that the gateway sends at that moment: a system prompt and up to 19 messages.
- `library_us`: the same conversation through ``ProviderModel.stream`` in this program: pydantic-ai and what
  we do with its pieces, but no other process. Both are asked after a turn of a tree, as the gateway is.
- `turn_us`: a run of a tree on Ray whose model the gateway asks, journal on (FULL): from `send` to its
  reply. `own_turn_us`: the same run with a model that replies in its session's process.
- `call_us`: turn_us less own_turn_us: what a question through the gateway takes. `added_us`: call_us less
  library_us: the gateway's own share; `added_calls`: added_us over raw_rpc_us; `added_direct_us`: call_us
  less direct_us; `added_direct_calls`: that over raw_rpc_us.
- `raw_rpc_us`: ``await actor.method.remote()`` on a plain async actor of the same Ray, from this program.
- `direct_delta_us`, `delta_us`, `delta_ratio`: from the provider's sending of a delta to its arrival in
  OpenAI's library in this program, and in ``async for piece in session.send(…)``, and their ratio. There are
  10 ms between two deltas.
- `host_mib`, `host_used_mib`: resident memory of a Main's process whose model replies in it, and of one
  whose model the gateway asks.
- `gateway_mib`: the gateway's memory after some questions; `waiting`: questions of Workers that wait in the
  gateway at the same time, 1,000 (quick: 40); `waiting_mib`: what its memory grows by, at most.
- `streams`: Workers that stream at the same time, 200 (quick: 12); `deltas_per_s`: their deltas that reached
  a watcher in this program, over the time from the first to the last; `lost_deltas`: those of them that its
  buffer dropped; `direct_deltas_per_s`: the same by OpenAI's library in this program; `stream_ratio`: the
  second over the first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from openai import AsyncOpenAI

from benchmarks.gateway_provider import ProviderProcess, delays_us, order
from benchmarks.places import places
from benchmarks.raw_actor import RawActors
from benchmarks.report import Figure, Options, read_options, show
from benchmarks.rounds import Rounds
from sessiontree import (
    AssistantMessage,
    CallTimeouts,
    Limits,
    ModelRequest,
    ProviderModel,
    Runtime,
    SessionKind,
    SessionTree,
    UserMessage,
)
from sessiontree.contracts.reports.events import TextDelta
from sessiontree.contracts.values.messages import Message, TextContent
from sessiontree.models.port import Model
from sessiontree.runtime.transport.supervisor_api import ActorRow

Opener: TypeAlias = Callable[[Model], SessionTree]

KEY = "sk-of-a-benchmark"
NAME = "openai:gpt-4.1"
PROMPT = "Do what you are asked to do, and say what you did. " * 20
GAP_S = 0.01
PATIENCE_S = 60.0
TAKEN = ("raw_rpc_us", "direct_us", "library_us", "own_turn_us", "turn_us", "direct_delta_us", "delta_us")


class AtOnce:
    """Replies in its session's process."""

    name = "at-once"

    def reply(self, request: ModelRequest) -> AssistantMessage:
        """Return a text as short as the provider's."""
        return AssistantMessage((TextContent(f"{time.monotonic_ns()} "),))


class Direct:
    """OpenAI's library, in this program."""

    def __init__(self, url: str) -> None:
        """Connect with the first question."""
        self._client = AsyncOpenAI(api_key=KEY, base_url=url, max_retries=0)

    async def ask(self, words: str, said: Sequence[tuple[str, str]] = ()) -> list[tuple[int, str]]:
        """Return a reply's pieces, each with the time at which it came; ``said`` are messages and replies."""
        messages: list[Any] = [{"role": "system", "content": PROMPT}] if said else []
        for asked, replied in said:
            messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": replied}]
        stream = await self._client.chat.completions.create(
            model=NAME.partition(":")[2],
            messages=[*messages, {"role": "user", "content": words}],
            stream=True,
            stream_options={"include_usage": True},
        )
        return [
            (time.monotonic_ns(), text)
            async for chunk in stream
            for choice in chunk.choices
            if (text := choice.delta.content)
        ]

    async def call_us(self, said: Sequence[tuple[str, str]]) -> float:
        """Return the microseconds of a reply of one delta, after a conversation."""
        started_ns = time.monotonic_ns()
        await self.ask(order(1), said)
        return (time.monotonic_ns() - started_ns) / 1e3

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def served(url: str) -> ProviderModel:
    """Return the provider's model."""
    return ProviderModel(NAME, api_key=KEY, base_url=url, timeouts=CallTimeouts(first_s=None, total_s=None))


async def library_us(model: ProviderModel, said: Sequence[tuple[str, str]]) -> float:
    """Return the microseconds of a reply of one delta, asked in this process, after a conversation."""
    messages: list[Message] = []
    for asked, replied in said:
        messages.append(UserMessage((TextContent(asked),), 1))
        messages.append(AssistantMessage((TextContent(replied),)))
    messages.append(UserMessage((TextContent(order(1)),), 1))
    request = ModelRequest("main", SessionKind.MAIN, 1, PROMPT, (), messages, None)
    started_ns = time.monotonic_ns()
    async for _ in model.stream(request):
        pass
    return (time.monotonic_ns() - started_ns) / 1e3


async def turn_us(tree: SessionTree, words: str) -> float:
    """Return the microseconds of a run."""
    started_ns = time.monotonic_ns()
    await tree.main.send(words)
    return (time.monotonic_ns() - started_ns) / 1e3


async def pieces_of(tree: SessionTree, words: str) -> list[tuple[int, str]]:
    """Return a reply's pieces, each with the time at which it came."""
    return [(time.monotonic_ns(), piece) async for piece in tree.main.send(words)]


def memory_mib(pid: int, name: str) -> float:
    """Return a process's resident memory: ``VmRSS`` now, ``VmHWM`` at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


async def calls(open_tree: Opener, url: str, options: Options) -> dict[str, Figure]:
    """Return what a question and a delta take; each round has new trees, so that conversations are short."""
    rounds, each, deltas = (3, 4, 20) if options.quick else (11, 8, 50)
    taken = Rounds()
    direct, library = Direct(url), served(url)
    async with RawActors() as raw:
        for _ in range(rounds):
            taken.begin()
            async with open_tree(AtOnce()) as own, open_tree(served(url)) as tree:
                await turn_us(own, "warm up")
                await turn_us(tree, order(1))
                for number in range(1, each + 1):
                    said = [(order(1), f"{time.monotonic_ns()} ")] * number
                    taken.add("raw_rpc_us", await raw.call_us())
                    taken.add("library_us", await library_us(library, said))
                    taken.add("own_turn_us", await turn_us(own, "go"))
                    taken.add("direct_us", await direct.call_us(said))
                    taken.add("turn_us", await turn_us(tree, order(1)))
                arrived = await direct.ask(order(deltas, between_s=GAP_S))
                taken.add("direct_delta_us", *delays_us(arrived))
                arrived = await pieces_of(tree, order(deltas, between_s=GAP_S))
                taken.add("delta_us", *delays_us(arrived))
    await direct.close()
    await library.close()
    found = {name: taken.median(name) for name in TAKEN}
    call_us = found["turn_us"] - found["own_turn_us"]
    added_us = call_us - found["library_us"]
    return {
        **found,
        "call_us": call_us,
        "added_us": added_us,
        "added_calls": added_us / found["raw_rpc_us"],
        "added_direct_us": call_us - found["direct_us"],
        "added_direct_calls": (call_us - found["direct_us"]) / found["raw_rpc_us"],
        "delta_ratio": found["delta_us"] / found["direct_delta_us"],
    }


async def rows_of(runtime: Runtime) -> list[ActorRow]:
    """Return the processes of a runtime."""
    backend: Any = runtime.backend
    rows: list[ActorRow] = await backend.actors()
    return rows


async def hosts(runtime: Runtime, own: SessionTree, tree: SessionTree) -> dict[str, Figure]:
    """Return the memory of a host whose model replies in it, and of one whose model the gateway asks."""
    found: dict[str, Figure] = {}
    for name, each, words in (("host_mib", own, "go"), ("host_used_mib", tree, order(1))):
        await each.main.send(words)
        # Read at once: the next Main may take the host of one that is idle.
        pids = [
            row.pid for row in await rows_of(runtime) if (row.tree_id, row.session) == (each.tree_id, "main")
        ]
        found[name] = memory_mib(pids[0], "VmRSS")
    return found


async def streams(tree: SessionTree, url: str, options: Options) -> dict[str, Figure]:
    """Return how many deltas a second arrive of many streams at once."""
    many, deltas, after_s = (12, 20, 1.5) if options.quick else (200, 50, 15.0)
    direct = Direct(url)
    words = order(deltas, after_s=1.0)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(direct.ask(words)) for _ in range(many)]
    await direct.close()
    at_ns = [at_ns for asked in asking for at_ns, _ in asked.result()]
    by_library = len(at_ns) / (max(at_ns) - min(at_ns)) * 1e9
    watching = asyncio.create_task(arrivals(tree, many * deltas))
    tasks = [order(deltas, after_s=after_s)] * many
    await tree.main.map("worker", tasks, concurrency=many, on_error="raise")
    async with asyncio.timeout(PATIENCE_S):
        came_ns, lost = await watching
    here = (len(came_ns) + lost) / (came_ns[-1] - came_ns[0]) * 1e9
    return {
        "streams": many,
        "direct_deltas_per_s": by_library,
        "deltas_per_s": here,
        "stream_ratio": by_library / here,
        "lost_deltas": lost,
    }


async def waiting(
    tree: SessionTree, provider: ProviderProcess, pid: int, options: Options
) -> dict[str, Figure]:
    """Return what questions that wait in the gateway take of its memory."""
    many, after_s = (40, 2.0) if options.quick else (1_000, 45.0)
    before = memory_mib(pid, "VmRSS")
    await tree.main.map("worker", [order(1, after_s=after_s)] * many, concurrency=many, on_error="raise")
    return {
        "gateway_mib": before,
        "waiting": await asyncio.to_thread(provider.most_running),
        "waiting_mib": memory_mib(pid, "VmHWM") - before,
    }


async def arrivals(tree: SessionTree, wanted: int) -> tuple[list[int], int]:
    """Return when each delta of a tree came, in ns, and how many were dropped; ends with the last."""
    came_ns: list[int] = []
    reader = tree.progress()
    while len(came_ns) + reader.dropped < wanted:
        if isinstance((await reader.next()).event, TextDelta):
            came_ns.append(time.monotonic_ns())
    reader.close()
    return came_ns, reader.dropped


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    show(asyncio.run(measure(options)), options)


async def measure(options: Options) -> dict[str, Figure]:
    """Return the figures."""
    limits = Limits(max_children=100_000, max_total=100_000, max_live=100_000)
    with ProviderProcess() as provider, places() as (workspace, state):
        async with Runtime(state) as runtime:

            def open_tree(model: Model) -> SessionTree:
                return SessionTree(
                    workspace, model=model, builtin_tools=False, limits=limits, runtime=runtime
                )

            figures = await calls(open_tree, provider.url, options)
            async with open_tree(AtOnce()) as own, open_tree(served(provider.url)) as tree:
                figures |= await hosts(runtime, own, tree)
                pid = next(row.pid for row in await rows_of(runtime) if row.role == "gateway")
                figures |= await waiting(tree, provider, pid, options)
                figures |= await streams(tree, provider.url, options)
    return figures


if __name__ == "__main__":
    main()
