"""The fake provider as a process, and its replies that are not streamed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

MODULE = "sessiontree.testing.fake_provider"
PATHS = {
    "/v1/chat/completions": ["choices", 0, "message", "content"],
    "/mistral/v1/chat/completions": ["choices", 0, "message", "content"],
    "/v1/responses": ["output", 0, "content", 0, "text"],
    "/v1/messages": ["content", 0, "text"],
    "/v1beta/models/gemini:generateContent": ["candidates", 0, "content", "parts", 0, "text"],
}
"""Where each provider's questions go, and where its answer's text is."""
SCRIPT = [{"text": "Fine."}] * len(PATHS) + [{"status": 429, "retry_after_s": 3, "error": "slow down"}]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a fake provider in a process of its own."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command = [sys.executable, "-m", MODULE, "--script", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        yield f"http://127.0.0.1:{port}"
        process.terminate()


def test_process_answers_in_every_form(address: str) -> None:
    """Each provider's path has the reply in its own form; then comes the script's error; all is counted."""
    body = {"model": "m", "messages": []}
    for path, place in PATHS.items():
        found: Any = httpx.post(address + path, json=body).json()
        for step in place:
            found = found[step]
        assert found == "Fine.", path
    failed = httpx.post(address + "/v1/messages", json=body)
    assert (failed.status_code, failed.headers["retry-after"]) == (429, "3")
    assert failed.json()["error"] == {"type": "rate_limit_error", "message": "slow down"}
    assert httpx.get(address).json()["requests"] == len(SCRIPT)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"txt": "Fine."}]', "a reply has no txt; it has between_s, calls"),
        ('["Fine."]', "a reply is an object such as {'text': 'yes'}, not 'Fine.'"),
        ('{"text": "Fine."}', "it is an array of replies, at least one, such as [{'text': 'yes'}]"),
        ("null", "it is an array of replies"),
        ("[]", "at least one"),
        ('[{"text": 5}]', "text of a reply: Input should be a valid string, not 5"),
        ('[{"calls": [{"nam": "x"}]}]', "calls.0.name of a reply: Field required, not {'nam': 'x'}"),
        ('[{"events": [7]}]', "of a reply: Input should be a valid"),
    ],
)
def test_script_that_is_no_good_is_named(tmp_path: Path, text: str, said: str) -> None:
    """A member that no reply has ends the program with its name and the names there are; so does no reply."""
    script = tmp_path / "script.json"
    script.write_text(text)
    command = [sys.executable, "-m", MODULE, "--script", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert said in " ".join(ended.stderr.split())
