"""
Settings: what a process reads from its environment, checked once, at its start.

Each process needs some of them, so a missing one is refused when it is asked for; a wrong or
misspelt one is refused at once.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from oncefence.activities.egress_proxy import EgressProxy
from oncefence.domain.errors import ConfigurationRefused
from oncefence.domain.limits import Limits
from oncefence.domain.redaction import Secret

T = TypeVar("T")

PREFIX: Final = "ONCEFENCE_"
_HOST_AND_PORT: Final = "give host:port, like 127.0.0.1:8080"
_REMEDIES: Final = {
    "ONCEFENCE_DATABASE_URL": "Set it to the URL of the role oncefence_app, like "
    "postgresql://oncefence_app:password@host:5432/oncefence",
    "ONCEFENCE_MIGRATOR_URL": "Set it to the URL of the role oncefence_migrator, like "
    "postgresql://oncefence_migrator:password@host:5432/oncefence",
    "ONCEFENCE_TEMPORAL_ADDRESS": "Set it to where Temporal listens, like 127.0.0.1:7233",
    "ONCEFENCE_KEY_FILE": "Make one with `oncefence migrate --make-key-file` and name it here",
    "ONCEFENCE_URL": "Set it to where `oncefence serve` listens, like http://127.0.0.1:8080",
    "ONCEFENCE_CREDENTIAL": "Set it to what `oncefence runtime register` printed",
    "ONCEFENCE_DOORS": "Set it to where `oncefence serve` listens, like http://127.0.0.1:8080",
    "ONCEFENCE_OPERATOR_TOKEN": "Set it to what `oncefence operator add` printed",
}
_CHECK_VALUE: Final = "Correct it, or leave it unset for the default"


def _problem(text: str) -> PydanticCustomError:
    return PydanticCustomError("oncefence", "{text}", {"text": text})


def _listen_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise _problem(_HOST_AND_PORT)
    return text


def _server_address(text: str) -> str:
    if "://" in text or int(_listen_address(text).rpartition(":")[2]) == 0:
        raise _problem(_HOST_AND_PORT)
    return text


def _folders(text: object) -> object:
    # As in PATH; an empty part would mean the current folder, which nobody means.
    return [part for part in text.split(os.pathsep) if part] if isinstance(text, str) else text


def _egress_proxy(text: object) -> object:
    try:
        return EgressProxy.parse(text) if isinstance(text, str) else text
    except ValueError as refusal:
        raise _problem(str(refusal)) from None


def _http_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise _problem("give a URL that begins with http:// or https://")
    return text.rstrip("/")


_THIS_MACHINE: Final = ("127.0.0.1", "localhost", "::1")


def _public_url(text: str) -> str:
    url = _http_url(text)
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise _problem("give scheme, host and perhaps port and path")
    if parts.scheme == "http" and parts.hostname not in _THIS_MACHINE:
        # A code that comes back in clear is everybody's on the way.
        raise _problem("give a URL that begins with https://; http:// is for this machine alone")
    return url


class Settings(BaseModel):
    """
    The settings of one process, under the names that they have in the environment.

    The properties below are how the program reads those that it cannot do without.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    set_database_url: SecretStr | None = Field(None, alias="ONCEFENCE_DATABASE_URL")
    set_migrator_url: SecretStr | None = Field(None, alias="ONCEFENCE_MIGRATOR_URL")
    set_temporal_address: Annotated[str, AfterValidator(_server_address)] | None = Field(
        None, alias="ONCEFENCE_TEMPORAL_ADDRESS"
    )
    temporal_namespace: str = Field("default", alias="ONCEFENCE_TEMPORAL_NAMESPACE")
    task_queue: str = Field("oncefence", alias="ONCEFENCE_TASK_QUEUE")
    set_key_file: Path | None = Field(None, alias="ONCEFENCE_KEY_FILE")
    time_scale: float = Field(1.0, alias="ONCEFENCE_TIME_SCALE", gt=0, le=1)
    attempts_max: int = Field(Limits().attempts_max, alias="ONCEFENCE_ATTEMPTS_MAX", ge=1)
    admission_window: int = Field(
        Limits().admission_window, alias="ONCEFENCE_ADMISSION_WINDOW", ge=1, le=10_000
    )
    drain_seconds: float = Field(30.0, alias="ONCEFENCE_DRAIN_SECONDS", ge=0, le=3600)
    listen: Annotated[str, AfterValidator(_listen_address)] = Field(
        "127.0.0.1:8080", alias="ONCEFENCE_LISTEN"
    )
    pack_folders: Annotated[tuple[Path, ...], BeforeValidator(_folders)] = Field(
        (), alias="ONCEFENCE_PACK_FOLDERS"
    )
    egress_proxy: Annotated[EgressProxy | None, BeforeValidator(_egress_proxy)] = Field(
        None, alias="ONCEFENCE_EGRESS_PROXY"
    )
    set_public_url: Annotated[str, AfterValidator(_public_url)] | None = Field(
        None, alias="ONCEFENCE_PUBLIC_URL"
    )
    set_url: Annotated[str, AfterValidator(_http_url)] | None = Field(None, alias="ONCEFENCE_URL")
    set_credential: SecretStr | None = Field(None, alias="ONCEFENCE_CREDENTIAL")
    set_doors: Annotated[str, AfterValidator(_http_url)] | None = Field(
        None, alias="ONCEFENCE_DOORS"
    )
    set_operator_token: SecretStr | None = Field(None, alias="ONCEFENCE_OPERATOR_TOKEN")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """
        The settings in `environment` (the process's own by default); empty means unset.

        Raises:
            ConfigurationRefused: A name that is none of ours, or a value that cannot be.
        """
        source = os.environ if environment is None else environment
        named: dict[str, Any] = {  # what pydantic is here to check
            name: value for name, value in source.items() if name.startswith(PREFIX) and value
        }
        try:
            return cls(**named)
        except ValidationError as error:
            raise _refusal(error, known=_names(cls)) from None

    @property
    def database_url(self) -> str:
        return self._needed("ONCEFENCE_DATABASE_URL", self.set_database_url).get_secret_value()

    @property
    def migrator_url(self) -> str:
        return self._needed("ONCEFENCE_MIGRATOR_URL", self.set_migrator_url).get_secret_value()

    @property
    def temporal_address(self) -> str:
        return self._needed("ONCEFENCE_TEMPORAL_ADDRESS", self.set_temporal_address)

    @property
    def key_file(self) -> Path:
        return self._needed("ONCEFENCE_KEY_FILE", self.set_key_file)

    @property
    def url(self) -> str:
        return self._needed("ONCEFENCE_URL", self.set_url)

    @property
    def credential(self) -> str:
        return self._needed("ONCEFENCE_CREDENTIAL", self.set_credential).get_secret_value()

    @property
    def doors(self) -> str:
        return self._needed("ONCEFENCE_DOORS", self.set_doors)

    @property
    def operator_token(self) -> Secret:
        token = self._needed("ONCEFENCE_OPERATOR_TOKEN", self.set_operator_token)
        return Secret(token.get_secret_value())

    @property
    def listen_host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def listen_port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    @property
    def public_url(self) -> str | None:
        """Where a browser reaches the doors; on a loopback address they are where they listen."""
        if self.set_public_url is not None:
            return self.set_public_url
        is_here = self.listen_host in _THIS_MACHINE
        return f"http://{self.listen}" if is_here else None

    @property
    def limits(self) -> Limits:
        return Limits(
            attempts_max=self.attempts_max,
            admission_window=self.admission_window,
            time_scale=self.time_scale,
        )

    @staticmethod
    def _needed(name: str, value: T | None) -> T:
        if value is None:
            raise ConfigurationRefused(
                setting=name, reason="this is not set", remedy=_REMEDIES[name]
            )
        return value


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias for field in model.model_fields.values() if field.alias is not None]


def _refusal(error: ValidationError, known: list[str]) -> ConfigurationRefused:
    """The first fault as one sentence; the value is left out, for it may be a secret."""
    fault = error.errors(include_input=False, include_url=False)[0]
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        words = [each.removeprefix(PREFIX) for each in known]
        near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1, cutoff=0.7)
        return ConfigurationRefused(
            setting=name,
            reason="there is no such setting",
            remedy=f"Did you mean {PREFIX}{near[0]}?" if near else f"There are: {', '.join(known)}",
        )
    message = fault["msg"]
    return ConfigurationRefused(
        setting=name,
        reason=message[:1].lower() + message[1:],
        remedy=_REMEDIES.get(name, _CHECK_VALUE),
    )
