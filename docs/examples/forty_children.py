"""Forty children edit one repository, each in a workspace of its own; their parent merges what fits.

Usage: ``python forty_children.py REPOSITORY [CHILDREN]``. The repository needs files ``part_00.txt`` and so
on, three fewer than children: the last three children edit a file that an earlier one edits, too. No model is
asked: a function plays the children. Nothing is committed; ``git diff`` shows what was merged.
"""

import asyncio
import sys

from sessiontree import Answer, FunctionModel, Limits, ModelRequest, SessionTree, script_call

CONFLICTS = 3


def child(request: ModelRequest) -> Answer:
    """Write the file that the task names, then say so."""
    path, _, text = request.messages[0].text.partition(": ")
    if len(request.messages) == 1:
        return script_call("write", path=path, content=f"{text}\n")
    return f"wrote {path}"


async def main(repository: str, children: int) -> None:
    files = children - CONFLICTS
    tasks = [f"part_{number % files:02}.txt: by child {number}" for number in range(children)]
    tree = SessionTree(
        repository, model=FunctionModel(child), backend="local", limits=Limits(max_children=children)
    )
    async with tree:
        results = await tree.main.map("branch", tasks, workspace="own", concurrency=8)
        clean = 0
        for result in results:
            merged = await tree.main.child_workspaces.merge(result.session_id)
            clean += merged.status == "merged"
            for conflict in merged.conflicts:
                print(f"{result.session_id}: {conflict.path}: {conflict.reason}")
        print(f"{clean} of {children} children were merged")
        await tree.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 40))
