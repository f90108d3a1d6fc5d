"""The secrets of a campaign, by kind, and the small real deployment that they go through."""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from sqlalchemy.ext.asyncio import AsyncEngine

from oncefence.app.client import RuntimeClient
from oncefence.app.stack import Stack
from oncefence.domain.command import Receipt
from oncefence.storage.engine import make_engine
from oncefence.storage.phases.register_runtime import register_runtime
from oncefence.storage.sealing import KeyRing
from tests.canaries.scan import Search
from tests.support.command_line import Ended, run
from tests.support.oauth_server import OAuthServer
from tests.support.plain_http import NO_TLS
from tests.support.world import scope_of

MARK = "Kanarienvogel"
"""Part of every secret that is planted here, and of nothing else in the project's world."""

NOTE = ("--note", "for the campaign")
SETTLED = "('succeeded', 'failed', 'cancelled', 'needs_attention')"
PACKS = Path(__file__).parents[1] / "data" / "packs"


class NestStack(Stack):
    """A stack whose worker knows the packs of the tests."""

    @property
    def worker_settings(self) -> dict[str, str]:
        return super().worker_settings | {"ONCEFENCE_PACK_FOLDERS": str(PACKS)}

    @property
    def admin_url(self) -> str:
        assert self._postgres is not None, "a campaign has a server of its own"
        return self._postgres.admin_url

    @property
    def passwords(self) -> list[str]:
        """Those of the three roles."""
        kept = json.loads((self.folder / "postgres" / "server.json").read_text())
        return [str(kept[role]) for role in ("admin", "migrator", "app")]


@dataclass(kw_only=True)
class Nest:
    """What is planted, and the ways in which it goes in."""

    stack: NestStack
    provider: OAuthServer
    engine: AsyncEngine
    ring: KeyRing
    secrets: list[tuple[str, str | bytes]] = field(default_factory=list)
    """Each with its kind and a number, which is how a finding names it."""

    said: list[tuple[str, str]] = field(default_factory=list)
    """What verbs printed and doors answered, by which of them."""

    operator_token: str = ""

    @classmethod
    def on(cls, stack: NestStack, provider: OAuthServer) -> "Nest":
        return cls(
            stack=stack,
            provider=provider,
            engine=make_engine(stack.database_url, size=4),
            ring=KeyRing.load(stack.key_file),
        )

    # --- planting ----------------------------------------------------------------------------

    def plant(self, kind: str) -> str:
        """A new secret that looks like a token and like nothing else."""
        return self.watch(kind, f"{MARK}-{kind.replace(' ', '-')}-{secrets.token_urlsafe(12)}")

    def watch(self, kind: str, secret: str) -> str:
        """A secret that the program or a provider made."""
        self.secrets.append((self._named(kind), secret))
        return secret

    def watch_bytes(self, kind: str, secret: bytes) -> None:
        self.secrets.append((self._named(kind), secret))

    def _named(self, kind: str) -> str:
        return f"{kind} {sum(name.startswith(kind) for name, _ in self.secrets) + 1}"

    def counts(self) -> dict[str, int]:
        """How many of each kind there are."""
        kinds = [name.rpartition(" ")[0] for name, _ in self.secrets]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}

    def search(self) -> Search:
        return Search(self.secrets, MARK)

    # --- by the program's own ways --------------------------------------------------------------

    async def verb(self, *words: object, more: Mapping[str, object] | None = None) -> Ended:
        """A verb of the program on this deployment; what it prints is a place of the search."""
        ended = await self.secretive_verb(*words, more=more)
        # An id is no part of the verb's name.
        verb = " ".join(word for word in words[:2] if isinstance(word, str))
        self.said.append((f"oncefence {verb}", ended.out + ended.err))
        return ended

    async def secretive_verb(
        self, *words: object, more: Mapping[str, object] | None = None
    ) -> Ended:
        """A verb that prints a secret once, because it is the only place that has it."""
        stack = self.stack
        settings: dict[str, object] = {
            "DATABASE_URL": stack.database_url,
            "TEMPORAL_ADDRESS": stack.temporal_address,
            "KEY_FILE": stack.key_file,
            "TIME_SCALE": f"{stack.state.time_scale:g}",
            "PACK_FOLDERS": PACKS,
            "DOORS": stack.doors_url,
            "URL": stack.doors_url,
        }
        if self.operator_token:
            settings["OPERATOR_TOKEN"] = self.operator_token
        return await run(*words, settings=settings | dict(more or {}))

    async def document(self, *words: object) -> Any:
        """The JSON of a verb that must not fail."""
        ended = await self.verb(*words, "--json")
        assert ended.code == 0, ended.err
        return ended.document

    def secret_file(self, name: str, secret: str) -> Path:
        path = self.stack.folder / "given" / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o600)
        path.write_text(secret, encoding="utf-8")
        return path

    async def answer(
        self, method: str, path: str, *, token: str | None, content: bytes = b"", **more: Any
    ) -> httpx.Response:
        """What a door answers; all of it is a place of the search."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            base_url=self.stack.doors_url, trust_env=False, verify=NO_TLS
        ) as client:
            answer = await client.request(
                method, path, headers=headers | more.pop("headers", {}), content=content, **more
            )
        self.said.append((f"{method} {path}", f"{answer.headers}\n{answer.text}"))
        return answer

    async def secretive_answer(self, path: str, message: Mapping[str, object]) -> Any:
        """What the door answers to an operator's act, where that has a secret in it, once."""
        headers = {"Authorization": f"Bearer {self.operator_token}"}
        async with httpx.AsyncClient(
            base_url=self.stack.doors_url, trust_env=False, verify=NO_TLS
        ) as client:
            answer = await client.post(path, headers=headers, json=message)
        assert answer.is_success, answer.text
        return answer.json()

    async def register(self, org: str) -> str:
        """The credential of a Runtime of the org, by the phase that the verb runs."""
        credential = await register_runtime(self.engine, self.ring, scope_of(org), actor="tests")
        return self.watch("credential", credential)

    async def hand_over(
        self, credential: str, operation: str, subject: str, payload: Mapping[str, str]
    ) -> Receipt:
        """A command that comes in at the door."""
        async with RuntimeClient(self.stack.doors_url, credential) as client:
            return await client.hand_over(
                f"outbox-{secrets.token_hex(6)}", operation, subject, json.dumps(payload).encode()
            )

    # --- looking ---------------------------------------------------------------------------------

    async def rows(self, statement: str, *values: object) -> Sequence[Any]:
        connection = await asyncpg.connect(self.stack.admin_url)
        try:
            return await connection.fetch(statement, *values)
        finally:
            await connection.close()

    async def expire_tokens(self, org: str) -> None:
        """Every token of the org ended a minute ago, as time itself would have it."""
        connection = await asyncpg.connect(self.stack.admin_url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute(
                    "UPDATE oncefence.token_versions"
                    " SET made_at = clock_timestamp() - interval '61 minutes',"
                    " expires_at = clock_timestamp() - interval '1 minute' WHERE org_id = $1",
                    org,
                )
        finally:
            await connection.close()

    async def until(self, what: str, statement: str, *values: object, within_s: float = 60) -> None:
        """Return when the statement says true; fail when it has not by then."""
        try:
            async with asyncio.timeout(within_s):
                while not (await self.rows(statement, *values))[0][0]:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"not within {within_s:g} s: {what}") from None

    async def settled(self, org: str, count: int) -> None:
        """Return when the org has so many executions, all at their end."""
        await self.until(
            f"{count} executions of {org} are settled",
            f"SELECT count(*) FILTER (WHERE status IN {SETTLED}) = $2 AND count(*) = $2"
            " FROM oncefence.executions WHERE org_id = $1",
            org,
            count,
        )
