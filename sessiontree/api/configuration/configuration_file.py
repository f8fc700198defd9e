"""The file of the owner's configuration, as the runtime shows and changes it for the owner's sessions.

Every change is checked as a whole before it replaces the file. Comments and the order of members stay.
"""

from __future__ import annotations

import asyncio
import copy
import fcntl
import hashlib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import pydantic
import tomlkit
from tomlkit.exceptions import TOMLKitError

from sessiontree.api.agents.owned_files import MAX_BYTES, PRIVATE, check_outside, read_owned, replace_owned
from sessiontree.api.configuration.configuration import Configuration
from sessiontree.contracts.errors import ConfigError, ExecutionError, ValidationError
from sessiontree.contracts.handles.runtime_control import ConfigurationChange, StoredConfiguration
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

HIDDEN: Final = "(hidden)"
"""Shown instead of the path of a key's file, and of what an address has besides its server and path."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
MAX_DEPTH: Final = 32
"""Maximum depth of a patch."""


def identify_machine() -> str:
    """Return a name of this machine since its last start."""
    return f"{os.uname().nodename} {BOOT_ID.read_text(encoding='ascii').strip()}"


def open_configuration(path: Path, workspace: Path) -> ConfigurationFile:
    """Return the file of a tree's owner, on this machine.

    Raises:
        ConfigError: it is in the workspace.
    """
    check_outside(path.parent, "the configuration", workspace)
    check_outside(path, "the configuration", workspace)
    return ConfigurationFile(path, identify_machine())


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The file, and the machine that has it: a host elsewhere must not read another file of that name."""

    path: Path
    machine: str

    async def read(self) -> StoredConfiguration:
        """Return the configuration."""
        return await asyncio.to_thread(self._read)

    async def schema(self) -> Mapping[str, JsonValue]:
        """Return its JSON Schema."""
        return cast("dict[str, JsonValue]", Configuration.model_json_schema(mode="validation"))

    async def patch(self, base_sha256: str, patch: Mapping[str, JsonValue]) -> ConfigurationChange:
        """Apply a JSON merge patch to it."""
        _check_patch(patch, "/patch")
        # Not cancelled half-way: the thread finishes what it began, and the file is replaced in one step.
        return await asyncio.to_thread(self._patch, base_sha256, patch)

    def _read(self) -> StoredConfiguration:
        data = self._read_bytes()
        values = _parse_toml(data or b"")
        return StoredConfiguration(data is not None, _compute_hash(data), cast("Any", _redact(values)))

    def _patch(self, base_sha256: str, patch: Mapping[str, JsonValue]) -> ConfigurationChange:
        with self._lock():
            data = self._read_bytes()
            present = _compute_hash(data)
            if present != base_sha256:
                raise ValidationError(
                    f"the configuration has changed: its hash is {present} now; get it again, then patch it",
                    "/base_hash",
                )
            before = _parse_toml(data or b"")
            after = copy.deepcopy(before)
            _merge(after, patch)
            _check(after)
            changed = sorted(
                name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
            )
            if not changed:
                return ConfigurationChange(present, ())
            text = _edit((data or b"").decode("utf-8-sig"), patch, after)
            self._replace(text)
            return ConfigurationChange(_compute_hash(text), tuple(changed))

    def _read_bytes(self) -> bytes | None:
        """Return the file's bytes; None = the file does not exist.

        Raises:
            ExecutionError: it can't be read, others could have written it, or it is on another machine.
        """
        if identify_machine() != self.machine:
            raise ExecutionError("the owner's configuration is on another machine than this session")
        if not self.path.exists():
            return None
        try:
            text = read_owned(self.path, "configuration")
            data = self.path.read_bytes()
        except (ConfigError, OSError) as error:
            raise ExecutionError(f"the configuration can't be read: {error}") from None
        if data.decode("utf-8-sig", "replace") != text:
            raise ExecutionError("the configuration changes just now; try again")
        return data

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other sessions from changing the file; the lock ends with the process, whatever happens."""
        try:
            folder = self.path.resolve().parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, RuntimeError) as error:
            raise ExecutionError(f"the folder of the configuration can't be used: {error}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _replace(self, data: bytes) -> None:
        """Replace the file in one step; a crash leaves the former file or the new one."""
        try:
            mode = self.path.stat().st_mode & 0o777 if self.path.exists() else PRIVATE
            replace_owned(self.path, data, mode)
        except OSError as error:
            raise ExecutionError(f"the configuration can't be written: {error.strerror}") from None


def _compute_hash(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _parse_toml(data: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ExecutionError(f"the configuration is not TOML: {error}") from None


def _redact(value: Any, name: str = "") -> Any:
    """Return a value as JSON has it, without what could be a secret."""
    if isinstance(value, Mapping):
        if name in {"env", "headers"}:  # those of an MCP server
            return dict.fromkeys(value, HIDDEN)
        return {key: _redact(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [_redact(inner) for inner in value]
    if name == "key_file":
        return HIDDEN
    if name == "base_url" and isinstance(value, str):
        return _redact_address(value)
    return value if isinstance(value, str | int | float | bool) else str(value)


def _redact_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        if not (parts.username or parts.password or parts.query or parts.fragment):
            return address
        server = parts.netloc.rpartition("@")[2]
        return f"{urlunsplit((parts.scheme, server, parts.path, '', ''))} {HIDDEN}"
    except ValueError:
        return HIDDEN


def _check_patch(patch: Any, place: str, depth: int = 0) -> None:
    """Refuse what no configuration can hold, and what was shown instead of a value.

    Raises:
        ValidationError: names the member.
    """
    if depth > MAX_DEPTH:
        raise ValidationError(f"the patch is deeper than {MAX_DEPTH} levels", place)
    if isinstance(patch, str) and HIDDEN in patch:
        raise ValidationError(f"{HIDDEN} is shown instead of a value; leave the member out to keep it", place)
    if isinstance(patch, Mapping):
        for name, inner in patch.items():
            _check_patch(inner, f"{place}/{name}", depth + 1)
    elif isinstance(patch, list):
        for number, inner in enumerate(patch):
            if inner is None:
                raise ValidationError("a list can't hold null", f"{place}/{number}")
            _check_patch(inner, f"{place}/{number}", depth + 1)


def _remove_nulls(value: Any) -> Any:
    """Return a value as RFC 7396 adds it: members that are null are left out."""
    if isinstance(value, Mapping):
        return {name: _remove_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_remove_nulls(inner) for inner in value] if isinstance(value, list) else value


def _merge(target: MutableMapping[str, Any], patch: Mapping[str, Any]) -> None:
    """Apply a merge patch to a mapping, which may be a document that keeps its comments."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(held := target.get(name), MutableMapping):
            _merge(held, value)
        else:
            target[name] = _remove_nulls(value)


def _check(values: Mapping[str, Any]) -> None:
    try:
        Configuration.model_validate(values)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = "/".join(map(str, fault["loc"]))
        raise ValidationError(
            f"{place.replace('/', '.')}: {fault['msg']}; nothing was changed", f"/patch/{place}"
        ) from None


def _edit(text: str, patch: Mapping[str, Any], wanted: Mapping[str, Any]) -> bytes:
    """Return the text of the patched file: the owner's comments stay.

    Raises:
        ExecutionError: the text can't be patched, or would be too long to be read.
    """
    written = ""
    try:
        document = tomlkit.parse(text)
        _merge(document, patch)
        written = tomlkit.dumps(document)
        is_right = json.dumps(tomllib.loads(written), default=str, sort_keys=True) == json.dumps(
            wanted, default=str, sort_keys=True
        )
    except (TOMLKitError, ValueError, TypeError, KeyError, RecursionError):
        is_right = False
    if not is_right:
        # Of a layout that the editor does not know, no member may be lost.
        try:
            written = tomlkit.dumps(wanted)
            is_right = tomllib.loads(written) == wanted
        except (TOMLKitError, ValueError, TypeError, RecursionError):
            is_right = False
    data = written.encode() if is_right else b""
    if not is_right or len(data) > MAX_BYTES:
        raise ExecutionError("the file can't be patched; edit it by hand")
    return data
