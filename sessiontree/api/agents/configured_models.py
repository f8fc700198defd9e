"""Models that an owner configures by name: ``[models.NAME]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from sessiontree.api.agents.owned_files import OTHERS_USE, check_outside, read_owned
from sessiontree.api.runtime.paths import make_absolute
from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.settings.model_settings import ModelPrice
from sessiontree.contracts.settings.settings import StrictSettings
from sessiontree.models.named_key import OF_FILE
from sessiontree.models.port import Model
from sessiontree.models.providers.call_limits import CallLimits
from sessiontree.models.providers.provider_model import LOCAL, CallTimeouts, ProviderModel

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]
_KEY_MEMBERS: Final = {"api_key", "apikey", "token", "secret", "password"}
_VARIABLE: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")
_DEFAULT: Final = CallTimeouts()


class TimeoutSettings(StrictSettings):
    """Time limits of a question to a model, in seconds; a limit that is left out has its default."""

    connect_s: _Seconds = _DEFAULT.connect_s
    """Until there is a connection."""
    first_s: _Seconds | None = _DEFAULT.first_s
    """Until the first piece of the reply."""
    between_s: _Seconds | None = _DEFAULT.between_s
    """Between two pieces."""
    total_s: _Seconds | None = _DEFAULT.total_s
    """Until the last piece."""


class RateSettings(StrictSettings):
    """How many questions a model is asked; None = no limit."""

    at_once: _Count | None = None
    """Maximum number of questions in progress at a time."""
    per_minute: _Count | None = None
    """Maximum number of questions that begin within any 60 s."""


class ModelEntry(StrictSettings):
    """A model under a name of the owner's: ``[models.NAME]``."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    """``provider:model``, such as ``openai:gpt-5``, or ``local:smollm2``."""
    base_url: str | None = None
    """Address of another server with the same protocol; None = as for :class:`sessiontree.ProviderModel`."""
    key: str | None = None
    """The environment variable that holds the key, as ``env:VARIABLE``; None = the provider's own, or none
    with ``base_url``."""
    key_file: str | None = None
    """Absolute path of a file that holds the key and that only its owner may read."""
    context_tokens: _Count | None = None
    """Size of the model's context."""
    price: ModelPrice | None = None
    """What its tokens cost; a budget in USD needs it with ``base_url``."""
    limits: RateSettings = RateSettings()
    """How often it is asked."""
    timeouts: TimeoutSettings = TimeoutSettings()
    """How long it may take."""

    @model_validator(mode="before")
    @classmethod
    def _name_no_key(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and (
            any(str(name).lower() in _KEY_MEMBERS for name in given)
            or not _VARIABLE.fullmatch(str(given.get("key", "env:X")))
        ):
            raise ValueError(
                "a key is never written here; name its environment variable as key = 'env:VARIABLE', or its "
                "file by key_file"
            )
        return given

    @model_validator(mode="after")
    def _name_one_key(self) -> Self:
        if self.key is not None and self.key_file is not None:
            raise ValueError("give key or key_file, not both")
        return self

    def built(self, place: str, workspace: Path | None) -> Model:
        """Return the model.

        Args:
            place: Which entry it is, for errors.
            workspace: Where sessions read and write: a key's file must not be there.

        Raises:
            ConfigError: the name, the address or the key is wrong, or an extra is missing.
        """
        try:
            if self.model.startswith(LOCAL):
                self._check_local()
                from sessiontree.models.local.local_model import LocalModel

                return LocalModel(self.model)
            return ProviderModel(
                self.model,
                key=self._resolve_key(workspace),
                base_url=self.base_url,
                context_tokens=self.context_tokens,
                timeouts=CallTimeouts(**self.timeouts.model_dump()),
                limits=CallLimits(**self.limits.model_dump()),
                price=self.price,
            )
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None

    def _check_local(self) -> None:
        for name in self.model_fields_set - {"model"}:
            raise ConfigError(f"{name}: a local model has no such setting; leave it out")

    def _resolve_key(self, workspace: Path | None) -> str | None:
        if self.key_file is None:
            return self.key
        path = make_absolute(self.key_file, "key_file")
        if not self.key_file.startswith("~") and not Path(self.key_file).is_absolute():
            raise ConfigError(f"key_file {self.key_file!r}: give an absolute path")
        check_outside(path, "key_file", workspace)
        read_owned(path, "key_file", others_may=OTHERS_USE)
        return f"{OF_FILE}{path}"
