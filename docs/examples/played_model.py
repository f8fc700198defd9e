"""Play a provider's model on loopback, so that `sessiontree run` can be tried without a key.

It has one task in mind: count the lines of a project's documents and record them. Main gives a document to
each of three Workers, then runs `wc` in the sandbox, then answers. It prints two variables and serves until
it is interrupted:

    python docs/examples/played_model.py        # in one terminal
    export OPENAI_BASE_URL=… OPENAI_API_KEY=…   # in another one: what the first one printed
    sessiontree run "How long are the documents?" --model openai:gpt-5
"""

import asyncio
import json

from sessiontree.testing.fake_provider.fake_reply import FakeCall, FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider, FakeRequest

PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")
ANSWER = "The three documents are read. ARCHITECTURE.md is the longest; `wc` has the numbers."


def call(name: str, **arguments: str) -> FakeCall:
    """Return a tool call."""
    return FakeCall(name, json.dumps(arguments))


def reply(request: FakeRequest) -> FakeReply:
    """Return what the model says next; the conversation alone decides."""
    messages = [message for message in request.body["messages"] if message["role"] != "system"]
    turns = sum(message["role"] == "assistant" for message in messages)
    task = str(messages[0]["content"])
    if task.startswith("Read "):
        page = task.split()[1]
        if turns == 0:
            return FakeReply(calls=(call("read", path=page),), first_s=1.2)
        return FakeReply(f"{page} is read.", first_s=2.0 + PAGES.index(page))
    if turns == 0:
        spawns = [
            call("sessions_spawn", kind="worker", task=f"Read {page} wholly.", label=page) for page in PAGES
        ]
        return FakeReply("Three Workers read the documents.", calls=tuple(spawns), first_s=0.8)
    done = sum(f"{page} is read." in str(messages) for page in PAGES)
    if done < len(PAGES):
        return FakeReply(f"{done} of {len(PAGES)} are done.", first_s=0.5)
    if "total" not in str(messages):
        return FakeReply(calls=(call("exec", command=f"wc -l {' '.join(PAGES)}"),), first_s=1.0)
    return FakeReply(ANSWER, first_s=0.8, between_s=0.08)


async def main() -> None:
    """Serve until interrupted."""
    async with FakeProvider(reply) as provider:
        print(f"export OPENAI_BASE_URL={provider.url('openai')} OPENAI_API_KEY=played", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
