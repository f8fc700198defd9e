"""An MCP server for tests, written with the protocol's library.

Usage: ``python mcp_server_program.py (modern|handshake|forgetful) [DIRECTORY]``, over its standard
streams; or ``python mcp_server_program.py http PORT``. In the directory, each call leaves a line in
``calls.txt``, and a file ``changed`` changes a tool's description.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import sys
import zlib
from pathlib import Path
from typing import Any

from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.utilities.types import Image
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

MODE = sys.argv[1]
PLACE = Path(sys.argv[2]) if len(sys.argv) > 2 and MODE != "http" else None
# A key that outlives the process, as a server needs whose questions may be answered after its restart.
security = None if MODE == "forgetful" else RequestStateSecurity(keys=["k" * 32])
server = MCPServer("fixture", request_state_security=security)


class Point(BaseModel):
    """A structured result."""

    x: int
    y: int


class Name(BaseModel):
    """What the server asks for."""

    name: str


def note(text: str) -> None:
    """Leave a line for the test."""
    if PLACE is not None:
        with (PLACE / "calls.txt").open("a") as file:
            file.write(text + "\n")


@server.tool(description="Changed." if PLACE is not None and (PLACE / "changed").exists() else "Adds.")
def add(a: int, b: int) -> str:
    """Add two numbers."""
    note(f"add {a} {b}")
    return str(a + b)


@server.tool()
def point(x: int) -> Point:
    """Return structured content."""
    return Point(x=x, y=2 * x)


@server.tool()
def picture() -> Image:
    """Return a picture of one red pixel."""
    rows = zlib.compress(b"\0\xff\0\0")

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = chunk(b"IHDR", b"\0\0\0\1\0\0\0\1\x08\2\0\0\0")
    return Image(data=b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b""), format="png")


@server.tool()
def link() -> types.ResourceLink:
    """Return a link to a resource."""
    return types.ResourceLink(
        type="resource_link", name="notes", uri="file:///notes.txt", mime_type="text/plain"
    )


@server.tool()
def environment() -> str:
    """Return the names of the variables, and one value."""
    return json.dumps({"names": sorted(os.environ), "secret": os.environ.get("SECRET", "")})


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the fixture fails on purpose")


@server.tool()
async def wait(seconds: float) -> str:
    """Take a while."""
    note("wait")
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
def crash() -> str:
    """End this process in the middle of a call."""
    note("crash")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def fill(chars: int) -> str:
    """Return a long text."""
    return "x" * chars


@server.tool()
async def greet(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for a name, then for another one, and greet both."""
    note("greet")
    if MODE == "handshake":
        names = []
        for number in ("first", "second"):
            answer = await ctx.elicit(f"The {number} name?", Name)
            if answer.action != "accept":
                return f"not greeted: {answer.action}"
            names.append(answer.data.name)
        return f"hello {' and '.join(names)}"
    state = json.loads(base64.b64decode(ctx.request_state or "e30="))
    for key, given in (ctx.input_responses or {}).items():
        response = types.ElicitResult.model_validate(given, from_attributes=True)
        if response.action != "accept":
            return f"not greeted: {response.action}"
        state[key] = (response.content or {})["name"]
    for key in ("first", "second"):
        if key not in state:
            kept = base64.b64encode(json.dumps(state).encode()).decode()
            return types.InputRequiredResult(input_requests={key: name_form(key)}, request_state=kept)
    return f"hello {state['first']} and {state['second']}"


def name_form(key: str) -> types.ElicitRequest:
    """Return a request for a name."""
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    form = types.ElicitRequestFormParams(message=f"The {key} name?", requested_schema=schema)
    return types.ElicitRequest(params=form)


@server.tool()
def book(ctx: Context[Any, Any]) -> str | types.InputRequiredResult:
    """Ask for two names, and book for both once; note each state that is given and got."""
    got, answers = ctx.request_state, dict(ctx.input_responses or {})
    kept = json.loads(base64.b64decode(got)) if got else {"names": []}
    note(f"{os.getpid()} got {got}")
    for given in answers.values():
        response = types.ElicitResult.model_validate(given, from_attributes=True)
        kept["names"].append((response.content or {})["name"])
    if len(kept["names"]) == 2:
        note(f"{os.getpid()} booked {' and '.join(kept['names'])}")
        return "booked"
    kept["nonce"] = secrets.token_hex(16)
    state = base64.b64encode(json.dumps(kept).encode()).decode()
    note(f"{os.getpid()} gave {state}")
    key = ("first", "second")[len(kept["names"])]
    return types.InputRequiredResult(input_requests={key: name_form(key)}, request_state=state)


def refuse_first() -> None:
    """Answer the first message as a server that knows the handshake alone."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    number = json.loads(line)["id"]
    error = {"code": -32601, "message": "unknown method"}
    os.write(1, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode() + b"\n")


if __name__ == "__main__":
    if MODE == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        if MODE == "handshake":
            refuse_first()
        server.run("stdio")
