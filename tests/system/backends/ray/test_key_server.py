"""Who gets what from the program: keys for the gateway alone, variables by role, nothing for anybody else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sessiontree.backends.ray.client.key_server import (
    GATEWAY,
    MEMORY,
    KeyServer,
    fetch_key,
    fetch_options,
    take_variables,
)
from sessiontree.contracts.errors import SessionTreeError
from sessiontree.models.api_key import ApiKey

VARIABLES: Final = {
    GATEWAY: {"OF_A_TEST_1": "a=b", "OF_A_TEST_2": "two\nlines", "OF_A_TEST_3": "ü\udcff", "OF_A_TEST_4": ""},
    MEMORY: {"OF_A_TEST_5": "of memory"},
}
OPTIONS: Final = {"secret_access_key": "sk-of-a-test", "odd = name": 'two\nlines\0ü"', "empty": ""}


@contextmanager
def serving(path: Path, role_of: Callable[[int], str]) -> Iterator[Path]:
    """Serve as a program whose supervisor knows roles."""
    server = KeyServer(path / "keys", role_of, lambda role: VARIABLES.get(role, {}), OPTIONS)
    try:
        yield path / "keys"
    finally:
        server.close()


@pytest.fixture(autouse=True)
def own_variables() -> Iterator[None]:
    """What a test sets is gone afterwards."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before:
        del os.environ[name]
    os.environ.update(before)


@pytest.mark.parametrize("role", [GATEWAY, MEMORY])
def test_variables_arrive_as_they_are(tmp_path: Path, role: str) -> None:
    """Each role gets its own; what is set already stays; asking twice changes nothing."""
    os.environ["OF_A_TEST_1"] = "mine"
    with serving(tmp_path, lambda pid: role if pid == os.getpid() else "") as path:
        take_variables(path)
        take_variables(path)
    found = {name: value for name, value in os.environ.items() if name.startswith("OF_A_TEST_")}
    assert found == {**VARIABLES[role], "OF_A_TEST_1": "mine"}


@pytest.mark.covers("PRV3")
def test_only_the_gateway_gets_keys(tmp_path: Path) -> None:
    """A reference that nobody knows is refused, and so are other texts."""
    key, roles = ApiKey("sk-of-a-test"), [GATEWAY]
    reference = key.__reduce__()[1][0]
    with serving(tmp_path, lambda pid: roles[-1]) as path:
        assert fetch_key(path, reference, "") == "sk-of-a-test"
        for wrong in ("", "0" * 32, "../..", "variable"):
            with pytest.raises(OSError, match="it knows no such key"):
                fetch_key(path, wrong, "")
        for role in (MEMORY, "acting", "supervisor", ""):
            roles.append(role)
            with pytest.raises(OSError, match="this process may not ask for it"):
                fetch_key(path, reference, "")


def test_key_with_a_name_is_read_where_the_program_is(tmp_path: Path) -> None:
    """The program on another node holds no key: it reads the name's place, for the gateway alone."""
    file = tmp_path / "key"
    file.write_text("sk-in-a-file\n")
    file.chmod(0o600)
    os.environ["OF_A_TEST_KEY"] = "sk-in-a-variable"
    places = {f"file:{file}": "sk-in-a-file", "env:OF_A_TEST_KEY": "sk-in-a-variable"}
    roles = [GATEWAY]
    with serving(tmp_path, lambda pid: roles[-1]) as path:
        for name, text in places.items():
            assert fetch_key(path, "0" * 32, name) == text
        for name in ("env:OF_NO_TEST", f"file:{tmp_path}", "file:/none", "OF_A_TEST_KEY"):
            with pytest.raises(OSError, match="it knows no such key"):
                fetch_key(path, "0" * 32, name)
        file.chmod(0o640)
        with pytest.raises(OSError, match="it knows no such key"):
            fetch_key(path, "0" * 32, f"file:{file}")
        for role in (MEMORY, "acting", "supervisor", ""):
            roles.append(role)
            with pytest.raises(OSError, match="this process may not ask for it"):
                fetch_key(path, "0" * 32, "env:OF_A_TEST_KEY")


@pytest.mark.parametrize("role", ["acting", "observing", "supervisor", ""])
def test_nobody_else_gets_variables(tmp_path: Path, role: str) -> None:
    """Nothing is set."""
    with serving(tmp_path, lambda pid: role) as path, pytest.raises(OSError, match="may not ask for it"):
        take_variables(path)
    assert not any(name.startswith("OF_A_TEST_") for name in os.environ)


def test_only_memory_gets_storage_options(tmp_path: Path) -> None:
    """They arrive as they are, whatever is in them."""
    roles = [MEMORY]
    with serving(tmp_path, lambda pid: roles[-1]) as path:
        assert fetch_options(path) == OPTIONS
        for role in (GATEWAY, "acting", "observing", "supervisor", ""):
            roles.append(role)
            with pytest.raises(OSError, match="this process may not ask for it"):
                fetch_options(path)


def test_supervisor_that_is_gone_gives_nothing_away(tmp_path: Path) -> None:
    """While nobody knows who asks the answer is no; the server answers the next one."""
    asked: list[int] = []

    def role_of(pid: int) -> str:
        asked.append(pid)
        if len(asked) == 1:
            raise SessionTreeError("gone")
        return GATEWAY

    with serving(tmp_path, role_of) as path:
        take_variables(path)  # asks again after the first no
    assert os.environ["OF_A_TEST_1"] == "a=b"


def test_no_program_is_an_error(tmp_path: Path) -> None:
    """Whoever asks a program that is gone hears so, and waits for nothing."""
    with pytest.raises(OSError, match="No such file"):
        fetch_key(tmp_path / "keys", "0" * 32, "")
