"""An MCP server on loopback that wants OAuth, with its own authorization server; both are fixtures.

Usage: ``python -m tests.unit.mcp.guarded_server_program``. It prints its port. ``GET /count`` returns how
often each endpoint was asked; ``GET /expire`` makes every access token invalid, and ``GET /refuse`` refuses
refreshes from then on.
"""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

listener = socket.create_server(("127.0.0.1", 0))
PORT = listener.getsockname()[1]
BASE = f"http://127.0.0.1:{PORT}"
server = MCPServer("guarded")
count: Counter[str] = Counter()
valid: set[str] = set()
refreshes: set[str] = set()
refuses: set[bool] = set()


@server.tool()
def secret() -> str:
    """Return a text."""
    return "only with a token"


def tokens() -> dict[str, Any]:
    """Make a pair of tokens; earlier refresh tokens end."""
    access, refresh = secrets.token_hex(8), secrets.token_hex(8)
    valid.add(access)
    refreshes.clear()
    refreshes.add(refresh)
    return {"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh}


async def resource(_: Request) -> Response:
    """Say who gives tokens."""
    return JSONResponse({"resource": f"{BASE}/mcp", "authorization_servers": [BASE]})


async def metadata(_: Request) -> Response:
    """Say where."""
    return JSONResponse(
        {
            "issuer": BASE,
            "authorization_endpoint": f"{BASE}/authorize",
            "token_endpoint": f"{BASE}/token",
            "registration_endpoint": f"{BASE}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }
    )


async def register(request: Request) -> Response:
    """Register a client."""
    count["register"] += 1
    return JSONResponse({**await request.json(), "client_id": "client-1"}, 201)


async def authorize(request: Request) -> Response:
    """Agree at once, as a person would."""
    given = request.query_params
    back = urlencode({"code": "code-1", "state": given["state"], "iss": BASE})
    return RedirectResponse(f"{given['redirect_uri']}?{back}")


async def token(request: Request) -> Response:
    """Give tokens for a code or a refresh token."""
    form = await request.form()
    count[str(form["grant_type"])] += 1
    if form["grant_type"] == "refresh_token" and (refuses or form["refresh_token"] not in refreshes):
        return JSONResponse({"error": "invalid_grant"}, 400)
    return JSONResponse(tokens())


async def control(request: Request) -> Response:
    """Do what a test wants."""
    if request.url.path == "/expire":
        valid.clear()
    if request.url.path == "/refuse":
        refuses.add(True)
    return JSONResponse(dict(count))


inner = server.streamable_http_app()


async def guarded(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Let in who has a valid token."""
    if scope["type"] == "http" and scope["path"] == "/mcp":
        headers = dict(scope["headers"])
        if headers.get(b"authorization", b"").decode().removeprefix("Bearer ") not in valid:
            where = f'Bearer resource_metadata="{BASE}/.well-known/oauth-protected-resource/mcp"'
            await Response(status_code=401, headers={"WWW-Authenticate": where})(scope, receive, send)
            return
        await inner(scope, receive, send)
        return
    await outer(scope, receive, send)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    """Run the server's own part."""
    async with inner.router.lifespan_context(inner):
        yield


outer = Starlette(
    routes=[
        Route("/.well-known/oauth-protected-resource/mcp", resource),
        Route("/.well-known/oauth-authorization-server", metadata),
        Route("/register", register, methods=["POST"]),
        Route("/authorize", authorize),
        Route("/token", token, methods=["POST"]),
        Route("/count", control),
        Route("/expire", control),
        Route("/refuse", control),
        Mount("/", inner),
    ],
    lifespan=lifespan,
)

if __name__ == "__main__":
    sys.stdout.write(json.dumps({"port": PORT}) + "\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(guarded, log_level="critical")).run(sockets=[listener])
