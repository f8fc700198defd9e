"""Servers in the owner's configuration and in ``mcpServers`` files: read, merged, refused by place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sessiontree import ConfigError, Configuration
from sessiontree.mcp.pins import compute_identity
from sessiontree.mcp.settings import McpServer, reach, read_server_file


def test_configuration_names_servers_and_adds_to_a_file(tmp_path: Path) -> None:
    """The file is as other programs write it; an entry without a command adds to the file's."""
    others = {
        "git": {"command": "uvx", "args": ["mcp-server-git"], "autoApprove": ["*"], "env": {"A": "1"}},
        "web": {
            "type": "http",
            "url": "https://example.com/mcp",
            "headers": {"Authorization": "Bearer ${T}"},
        },
        "old": {"command": "x", "disabled": True},
    }
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": others}))
    (tmp_path / "sessiontree.toml").write_text(
        'mcp_file = "servers.json"\n[mcp.git.tiers]\ngit_status = "read-only"\n'
        '[mcp.time]\ncommand = "mcp-server-time"\n'
    )
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    servers = Configuration.load(tmp_path / "sessiontree.toml").mcp_servers()
    assert sorted(servers) == ["git", "time", "web"]
    assert (servers["git"].command, servers["git"].tiers) == ("uvx", {"git_status": "read-only"})
    options = Configuration.load(tmp_path / "sessiontree.toml").tree_options(model="scripted:x")
    assert options["mcp"] == servers


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "x", "url": "http://a"}, "give one of them"),
        ({"url": "ftp://a"}, "https://example.com/mcp"),
        ({"url": "https://user:word@a/"}, "in headers, not in the address"),
        ({"command": "x", "cwd": "here"}, "absolute path"),
        ({"type": "sse", "url": "https://a"}, "transport 'sse' is not supported"),
        ({"command": 5}, "command"),
        ([], "give an object"),
    ],
)
def test_fault_is_named_by_its_place_without_values(entry: object, words: str) -> None:
    """The error names file and entry."""
    if isinstance(entry, dict):
        entry = {**entry, "env": {"SECRET": "hunter2"}} if "command" in entry else entry
    with pytest.raises(ConfigError) as raised:
        read_server_file(json.dumps({"mcpServers": {"one": entry}}), "file 'm.json'")
    assert "file 'm.json': mcpServers.one" in str(raised.value)
    assert words in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "user:word" not in str(raised.value)


def test_values_of_variables_are_put_in_when_the_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in no representation and no identity; a missing variable is named."""
    server = McpServer(command="x", env={"TOKEN": "pre-${MCP_TEST_TOKEN}"})
    with pytest.raises(ConfigError, match=r"mcp.one.env.TOKEN: the variable MCP_TEST_TOKEN is not set"):
        reach("one", server)
    monkeypatch.setenv("MCP_TEST_TOKEN", "hunter2")
    reached = reach("one", server)
    assert reached.env["TOKEN"] == "pre-hunter2"
    assert "MCP_TEST_TOKEN" not in reached.env
    assert "hunter2" not in repr(reached)
    assert compute_identity(server) == compute_identity(McpServer(command="x", env={"TOKEN": "other"}))
    for other in ({"env": {"OTHER": "1"}}, {"args": ("y",), "env": {"TOKEN": "1"}}):
        assert compute_identity(server) != compute_identity(McpServer(command="x", **other))
