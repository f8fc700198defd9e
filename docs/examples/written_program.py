"""A program that a model writes, and a process that is killed in the middle of it.

Usage: ``python written_program.py FOLDER [--kill-after CHILDREN] [--local]``. The program has Workers rate
the texts in ``FOLDER/texts``, looks twice at the best three, and publishes them, which needs an approval.
Start it again with the same folder after a kill: it goes on, and no child is asked twice. No model is asked:
functions play Main, which writes the program, and the Workers.
"""

import argparse
import asyncio
import os
import signal
from pathlib import Path

from sessiontree import (
    Answer,
    ApprovalRequest,
    FunctionModel,
    ModelRequest,
    PermissionTier,
    PolicyConfig,
    SessionTree,
    ToolPolicy,
    script_call,
    tool,
)
from sessiontree.facts import ProgramAdvanced, RunFinished, SessionEnded

PROGRAM = """
phase("find")
names = (await find(pattern="*.txt")).splitlines()

phase("rate")
shape = {"type": "object", "properties": {"rating": {"type": "integer"}}, "required": ["rating"]}
tasks = [f"Rate {name}" for name in names]
outcomes = await map("worker", tasks, schema=shape, concurrency=4, on_error="return")
ratings = {}
for name, outcome in zip(names, outcomes):
    if outcome["status"] == "completed":
        ratings[name] = outcome["value"]["rating"]
    else:
        log(f"{name} is {outcome['status']}: {outcome['error']}")

phase("look twice")
best = sorted(ratings, key=lambda name: -ratings[name])[:3]
again = await asyncio.gather(*[spawn("worker", f"Rate {name}", schema=shape) for name in best])
for name, second in zip(best, again):
    ratings[name] = (ratings[name] + second["rating"]) / 2

phase("publish")
lines = [f"{ratings[name]:.1f} {name}" for name in best]
await write(path="BEST.md", content="\\n".join(lines) + "\\n")
try:
    receipt = await publish(path="BEST.md")
except PermissionError as error:
    receipt = f"not published: {error}"
{"best": lines, "receipt": receipt, "not rated": len(names) - len(ratings)}
"""


@tool(tier=PermissionTier.ELEVATED)
def publish(path: str) -> str:
    """Show a file to everybody."""
    return f"{path} is published"


def play(request: ModelRequest) -> Answer:
    """Play Main, which writes the program and says what came of it, and the Workers, which read and rate."""
    said = request.messages[-1].text
    if request.kind == "main":
        return script_call("program", code=PROGRAM) if len(request.messages) == 1 else said
    if len(request.messages) == 1:
        return script_call("read", path=said.removeprefix("Rate "))
    return f'{{"rating": {len(said.split())}}}'


def approve(request: ApprovalRequest) -> bool:
    """Approve what the program publishes."""
    print("approved:", request.tool, dict(request.arguments), flush=True)
    return True


def write_texts(folder: Path) -> None:
    """Write twelve texts of different lengths."""
    for number in range(12):
        path = folder / f"text_{number:02}.txt"
        path.write_text("word " * (number * 7 % 12) + "\n")


def last_seen(seen: Path) -> int:
    """Return the number of the last fact that was shown."""
    return int(seen.read_text()) if seen.exists() else 0


def note_seen(seen: Path, number: int) -> None:
    """Note the number of the fact that is shown now."""
    seen.write_text(str(number))


async def main(folder: Path, kill_after: int, backend: str) -> None:
    """Run the program, or go on with it."""
    texts, name = folder / "texts", folder / "tree"
    options = {"model": FunctionModel(play), "tools": [publish], "approver": approve}
    options |= {"state_dir": folder / "state", "backend": backend}
    if name.exists():
        tree = await SessionTree.resume(name.read_text(), **options)
        print("going on with", tree.tree_id, flush=True)
    else:
        texts.mkdir(parents=True)
        write_texts(texts)
        policy = PolicyConfig(tools=ToolPolicy(profile="coding", also_allow=("publish",)))
        tree = await SessionTree(texts, policy=policy, **options).start()
        name.write_text(tree.tree_id)
        tree.main.send("Which three texts are the best?")
    async with tree:
        await follow(tree, folder / "seen", kill_after)


async def follow(tree: SessionTree, seen: Path, kill_after: int) -> None:
    """Print what happens until Main is done; kill this process after so many children.

    The number of the last fact that was shown is in a file: after a kill, only what is new is shown.
    """
    ended = 0
    async for record in tree.events(after=last_seen(seen)):
        note_seen(seen, record.seq)
        for fact in record.facts:
            if isinstance(fact, ProgramAdvanced):
                for note in fact.notes:
                    print(f"{note.sort}: {note.text}", flush=True)
            elif isinstance(fact, SessionEnded):
                ended += 1
                print(f"{fact.session} has ended: {fact.result.summary}", flush=True)
                if ended == kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)
            elif isinstance(fact, RunFinished) and record.session == "main":
                print(fact.text)
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill-after", type=int, default=0)
    parser.add_argument("--local", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.folder.resolve(), given.kill_after, "local" if given.local else "ray"))
