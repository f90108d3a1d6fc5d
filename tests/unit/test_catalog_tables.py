"""The tables of a pack beside its operations: each mistake is named, each value read (C560)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from oncefence.catalog.bindings import IntegrationBinding
from oncefence.catalog.errors import CatalogError
from oncefence.catalog.loader import check, load_pack
from oncefence.catalog.signatures import SignatureVerdict
from oncefence.catalog.tables import PackTables
from oncefence.catalog.view import IntegrationBindingView, compile_view
from oncefence.domain.redaction import Secret

FULL = Path(__file__).parents[1] / "data/tables/full.toml"
TEXT = FULL.read_text(encoding="utf-8")
HOOKS = "subscriptions.people"
AGAIN = """
[quota.again]
scope = ["provider_key"]
limit = 1
window = "utc_day"
window_s = 86400
"""
OLD = """
[signatures.v0]
mac = "hmac-sha256"
text = "{body}"
signature = { header = "X-Old", encoding = "hex" }
"""

MISTAKES = [
    # quota
    ('scope = ["provider_key"]', 'scope = ["team"]', "quota.day.scope[0]", "'provider_key'"),
    ('scope = ["provider_key"]', 'scope = ["org", "org"]', "quota.day.scope", "one twice"),
    ('scope = ["provider_key"]', "scope = []", "quota.day.scope", "at least 1"),
    ('"people.write", "people.read"]', '"people.write", "people.reed"]',
     "quota.minute.endpoint_classes", "unknown endpoint class 'people.reed'"),
    ('corrected_by = ["minute"]', 'corrected_by = ["hour"]',
     "quota.minute.corrected_by", "unknown rate 'hour'; known: minute"),
    ('endpoint_classes = ["people.write", "people.read"]', 'endpoint_classes = ["hooks.read"]',
     "quota.minute.corrected_by", "is shown to none of the requests that count here"),
    ('limit_names = ["PER_MINUTE"]', 'limit_names = ["PER_HOUR"]',
     "quota.minute.limit_names", "unknown limit 'PER_HOUR'; known: PER_DAY, PER_MINUTE"),
    ('limit_names = ["PER_DAY"]', 'limit_names = ["PER_MINUTE"]',
     "quota.day.limit_names", "names quota.minute already"),
    ("window_s = 86400", "window_s = 3600", "quota.day.window_s", "must be 86400"),
    ("limit = 60\n", "limit = 0\n", "quota.minute.limit", "greater than or equal to 1"),
    ("limit = 60\n", "limits = 60\n", "quota.minute.limits", "did you mean 'limit'?"),
    ("[grants.person]\n", f"{AGAIN}\n[grants.person]\n",
     "quota.again", "counts the same as quota.day"),
    # grants
    ('principal = ["user"]\n', 'principal = ["user"]\nbearer = {}\n',
     "grants.person", "exactly one of bearer, oauth2 and mint"),
    ('principal = ["user"]', 'principal = ["user", "user"]', "grants.person.principal", "twice"),
    ('rotation = "grace"', 'rotation = "static"', "grants.person.oauth2.grace_s", "only then"),
    ('rotation = "grace"', 'rotation = "mint"', "grants.person.oauth2.rotation", "a mint has a"),
    ('"people.read", "people.write"]\nrot', '"people.read", "people.read"]\nrot',
     "grants.person.oauth2.scopes", "names one twice"),
    ("not_applied = [503]", "not_applied = [400]",
     "grants.person.oauth2.not_applied", "400 is an answer anyway"),
    ('"https://login.full.example/token"', '"http://login.full.example/token"',
     "grants.person.oauth2.token_url", "must be https://"),
    ('"https://login.full.example/token"', '"https://u@login.full.example/token"',
     "grants.person.oauth2.token_url", "no user"),
    ('"https://login.full.example/token"', '"https://login.full.example:8443/token"',
     "grants.person.oauth2.token_url", "no port"),
    ('"https://login.full.example/token"', '"https://login.full.example/token?a=1"',
     "grants.person.oauth2.token_url", "no query"),
    ("full.example/installs/{installation}", "full.example/installs/{install}",
     "grants.app.mint.url", "unknown variable {install}; known here: {installation}"),
    ("https://login.full.example/installs/{installation}", "https://{installation}.full.example",
     "grants.app.mint.url", "must be https://"),
    ("sub = ", "iss = ", "grants.app.mint.assertion.claims.iss", "set by issuer"),
    ('"RS256"', '"HS256"', "grants.app.mint.assertion.algorithm", "'RS256'"),
    ('["*.full.example"]', '["*.other.example"]',
     "grants.app.base_url.hosts", "does not admit the pack's own host api.full.example"),
    ('["*.full.example"]', '["*.example"]', "grants.app.base_url.hosts[0]", "one with a dot in it"),
    ('["*.full.example"]', '["*"]', "grants.app.base_url.hosts[0]", "must be a lower-case host"),
    ('path = "/v1" }', 'path = "/v1/.." }', "grants.app.base_url.path", "plain path"),
    # signatures
    ('signature = "v1"\nsecret = "sub', 'signature = "v2"\nsecret = "sub',
     "webhooks.people.signature", "unknown signature 'v2'; known: v1"),
    ("[webhooks.people]\n", f"{OLD}\n[webhooks.people]\n",
     "signatures.v0", "no webhook uses it"),
    ('text = "{timestamp}.{body}"', 'text = "{body}"', "signatures.v1.text", "{timestamp}"),
    # webhooks
    (', account = "install" }', " }", "webhooks.installs.event.account", "is missing"),
    ('dedup = { parts = ["id", "kind", "sent"], body_sha256 = true }\n', "",
     "webhooks.people.dedup", "is missing"),
    ('delivery_id = { body = "delivery" }', 'delivery_id = {}',
     "webhooks.installs.delivery_id", "either body or header"),
    ('delivery_id = { body = "delivery" }', 'delivery_id = { header = "X-Id" }',
     "webhooks.installs.delivery_id.header", "is one for a whole batch"),
    ('delivery_id = { body = "delivery" }', 'dedup = { parts = ["id"], body_sha256 = true }',
     "webhooks.installs.dedup.body_sha256", "must be false"),
    ("secret_headers = [", 'delivery_id = { body = "id" }\nsecret_headers = [',
     "webhooks.people.dedup", "has no effect"),
    ("on_network_failure = true, attempts_max", "on_network_failure = false, attempts_max",
     "webhooks.people.redelivery.attempts_max", "nothing is delivered again"),
    ('changes = "new"', 'changes = "new"\nproperty = "field"',
     "webhooks.people.event.value", "must be there with property"),
    ('changes = "new"', 'changes = "new"\nproperty = "field"\nvalue = "to"',
     "webhooks.people.event.property", "cannot be there with changes"),
    ('kind = "updated", object = "person"', 'kind = "updated", object = "people"',
     'webhooks.people.events."person.changed".object', "unknown object 'people'; known: person"),
    ('kind = "updated", object = "person"', 'kind = "updated"',
     'webhooks.people.events."person.changed".object', "is missing: a record is what updated"),
    ('kind = "installed"', 'kind = "installed", object = "person"',
     'webhooks.installs.events."install.made".object', "no record is what installed is about"),
    ('["X-Full-Cleanup"]', '["X-Full-Cleanup", "x-full-cleanup"]',
     "webhooks.people.secret_headers", "names x-full-cleanup twice"),
    ("deadline_ms = 5000", "deadline = 5000",
     "webhooks.people.deadline", "did you mean 'deadline_ms'?"),
    # subscriptions
    ('webhook = "people"', 'webhook = "persons"', f"{HOOKS}.webhook", "unknown webhook 'persons'"),
    ('events."person.changed" = { what', 'events."person.moved" = { what',
     f'{HOOKS}.events."person.moved"', "unknown event of webhook people 'person.moved'"),
    ('does = "changed" }', 'does = "made" }', f'{HOOKS}.events."person.changed"', "the same req"),
    ('does = "changed" }', 'doe = "changed" }', f'{HOOKS}.events."person.changed".does', "missing"),
    ('does = "changed" }', 'does = "changed", why = "x" }',
     f'{HOOKS}.events."person.changed".why', "has no effect: the create does not use it"),
    ('to = "{url}"', 'to = "fixed"', f"{HOOKS}.create", "does not use {url}"),
    ('to = "{url}"', 'to = "{uri}"', f"{HOOKS}.create", "unknown variable {uri}; known here"),
    ('key = "{secret}", ', "", f"{HOOKS}.secret", "where each subscription has one"),
    ('identity = "id"\nevents', 'identity = "id"\nsecret = "key"\nevents',
     f"{HOOKS}.secret", "where each subscription has one"),
    ('same = { url = "to", ', "same = { ", f"{HOOKS}.observe.same.url", "could not be found"),
    ('same = { url = "to", ', 'same = { url = "to", on = "on", ',
     f"{HOOKS}.observe.same.on", "unknown variable 'on'"),
    ('method = "GET", path = "/v1/hooks"', 'method = "POST", path = "/v1/hooks"',
     f"{HOOKS}.observe.request.method", "must be GET"),
    ('"does" }\nnext = { token = "next" }', '"does" }\nnext = {}',
     f"{HOOKS}.observe.next", "either url or token"),
    ('path = "/v1/hooks/{subscription_id}"\nendpoint_class = "hooks.write"\nsuccess = [204]',
     'path = "/v1/hooks"\nendpoint_class = "hooks.write"\nsuccess = [204]',
     f"{HOOKS}.delete", "does not use {subscription_id}"),
    ("success = [204]", "success = [404]", f"{HOOKS}.delete.success", "404 cannot be there"),
    ('method = "DELETE"', 'method = "DELETE"\nbody = { a = 1 }',
     f"{HOOKS}.delete.body", "is sent without a body"),
    (', credential = "none" }', " }", f"{HOOKS}.cleanup.request.credential", "must be none"),
    ('token = "{cleanup_token}"', 'token = "x"', f"{HOOKS}.cleanup.request", "{cleanup_token}"),
    ('header = "X-Full-Cleanup"', 'header = "X-Full-Bin"',
     f"{HOOKS}.cleanup.header", "must be among webhooks.people.secret_headers"),
    ("success = [201]", 'headers = { Authorization = "x" }',
     f"{HOOKS}.create.headers.Authorization", "is for the credential"),
    ('path = "/v1/hooks"\nbody', 'path = "/v1/../hooks"\nbody', f"{HOOKS}.create.path", "plain"),
    ('path = "/v1/hooks"\nbody', 'path = "/v1/{+url}"\nbody', f"{HOOKS}.create.path", "no simple"),
    ('body = { to = "{url}"', 'body = { to = "{url:integer}x"',
     f"{HOOKS}.create.body", "must be the whole value"),
    ("[subscriptions.people.create]", '[subscriptions.people.create]\nmedia_type = "text/plain"',
     f"{HOOKS}.create.media_type", "must be application/json"),
    # cursors
    ('[cursors.people]\nobject = "person"', '[cursors.people]\nobject = "people"',
     "cursors.people.object", "unknown object 'people'; known: person"),
    ("page_size = 100", "page_size = 300", "cursors.people.page_size", "more than page_size_max"),
    ("overlap_s = 300", "overlap_s = 0", "cursors.people.overlap_s", "would be passed over"),
    ("results_max = 10000\n", "", "cursors.people.ties", "must be there with results_max"),
    ('to = "{until}", size = "{page_size:integer}", page', 'size = "{page_size:integer}", page',
     "cursors.people.request", "does not use {until}"),
    ('from = "{since}"', 'from = "0"', "cursors.people.request", "does not use {since}"),
    (', page = "{page}", fields', ", fields", "cursors.people.next.token", "uses {page}"),
    ('next = { token = "next" }\npage', 'next = { url = "next", token = "next" }\npage',
     "cursors.people.next", "either url or token"),
    ('next = { token = "next" }\npage', 'next = { url = "next" }\npage',
     "cursors.people.next.url", "cannot be followed by POST"),
    (', above = "{after_id}"', "", "cursors.people.ties", "does not use {after_id}"),
    (', above = "{after_id}"', ', above = "{after}"', "cursors.people.ties", "{after}; known here"),
    ('[cursors.people.ties]\nmethod = "POST"', '[cursors.people.ties]\nmethod = "DELETE"',
     "cursors.people.ties.method", "a list only reads"),
]  # fmt: skip


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The full pack in `folder` with its text changed."""
    text = TEXT
    for old, new in changes:
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    path = folder / FULL.name
    path.write_text(text, encoding="utf-8")
    return path


class TestFullPack:
    def test_is_sound_without_a_warning(self) -> None:
        """What is right must pass, or nobody believes what is said to be wrong."""
        report = check([FULL])

        assert report.errors == report.warnings == ()

    def test_fills_every_table(self) -> None:
        """A table that is empty here is tested nowhere below."""
        pack = load_pack(FULL)

        assert [name for name in PackTables.model_fields if not getattr(pack, name)] == []

    def test_is_projected_into_a_view_and_read_back(self, tmp_path: Path) -> None:
        """Work resolves all of it from the pinned view and never from a pack (C561)."""
        pack = load_pack(FULL)
        view = compile_view(pack, a_binding())

        again = IntegrationBindingView.from_json(view.to_json())

        assert again == view
        assert again.digest == view.digest
        assert again.tables() == pack.tables()
        assert check([changed(tmp_path, ("limit = 60\n", "limit = 61\n"))]).errors == ()
        other = compile_view(load_pack(tmp_path / FULL.name), a_binding())
        assert other.digest != view.digest

    def test_leaves_tables_that_cannot_be_changed(self) -> None:
        """A view that could be changed would not be the one whose digest was published."""
        view = compile_view(load_pack(FULL), a_binding())

        for table in view.tables().values():
            assert table
        with pytest.raises(TypeError):
            view.quota["minute"] = view.quota["day"]  # type: ignore[index]
        with pytest.raises(TypeError):
            view.subscriptions["people"].events["person.made"]["what"] = "x"  # type: ignore[index]
        with pytest.raises(TypeError):
            view.subscriptions["people"].create.body["to"] = "x"  # type: ignore[index]

    def test_may_leave_out_every_table(self, tmp_path: Path) -> None:
        """A pack that only writes needs none of them."""
        path = tmp_path / FULL.name
        path.write_text(TEXT.partition("[quota.minute]")[0], encoding="utf-8")

        assert check([path]).errors == check([path]).warnings == ()
        assert all(not table for table in load_pack(path).tables().values())


class TestMistake:
    @pytest.mark.parametrize(("old", "new", "key", "reason"), MISTAKES)
    def test_is_named_by_file_key_and_reason(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """Whoever writes a pack is led to the line that is wrong (C562)."""
        path = changed(tmp_path, (old, new))

        with pytest.raises(CatalogError) as refused:
            load_pack(path)

        found = {(problem.key, reason in problem.reason) for problem in refused.value.problems}
        assert (key, True) in found, str(refused.value)
        assert {problem.file for problem in refused.value.problems} == {str(path)}


class TestWarning:
    def test_tells_of_requests_that_no_dimension_counts(self, tmp_path: Path) -> None:
        """A limit that is declared for some requests is usually meant for all (C300)."""
        path = changed(
            tmp_path,
            ('scope = ["provider_key"]', 'scope = ["org"]\nendpoint_classes = ["people.write"]'),
        )

        (warning,) = check([path]).warnings

        assert warning.key == "quota"
        assert warning.reason == (
            "counts no request of the classes hooks.read, hooks.write, people.search"
        )

    def test_tells_of_deliveries_that_nothing_finds_again(self, tmp_path: Path) -> None:
        """Where any answer ends a delivery, only a list shows what was missed (C336)."""
        path = tmp_path / FULL.name
        path.write_text(TEXT.partition("[cursors.people]")[0], encoding="utf-8")

        (warning,) = check([path]).warnings

        assert warning.key == "webhooks.people.redelivery"
        assert "no cursor reads person" in warning.reason


class TestQuota:
    def test_counts_the_named_classes_or_all(self) -> None:
        """A search has a limit of its own and does not use up that of writes."""
        quota = load_pack(FULL).quota

        assert [name for name, one in quota.items() if one.counts("people.write")] == [
            "minute",
            "day",
        ]
        assert [name for name, one in quota.items() if one.counts("people.search")] == ["day"]


class TestShippedPack:
    def test_verifies_its_own_provider_s_deliveries(self) -> None:
        """The vectors are read by the pack that is shipped and not only by a copy of it."""
        verdicts = {
            (vector["id"], vector["valid"]): verdict is SignatureVerdict.VALID
            for vector, verdict in shipped_verdicts()
        }

        assert {pack.partition(".")[0] for pack, _ in verdicts} >= {"outreach", "stripe"}
        assert [found for (_, valid), found in verdicts.items() if found != valid] == []

    def test_says_what_happens_to_a_delivery_that_is_not_taken(self) -> None:
        """One provider comes again after any failure, one never: nothing may be assumed (C336)."""
        again = {
            name: [route.redelivery.on_status for route in load_pack(name).webhooks.values()]
            for name in ("hubspot", "outreach", "stripe")
        }

        assert again == {"hubspot": [True], "outreach": [False, False], "stripe": [True]}

    def test_never_shows_the_header_that_could_remove_a_subscription(self) -> None:
        """Whoever reads it in a log could end our deliveries."""
        outreach = load_pack("outreach")
        cleanup = outreach.subscriptions["prospects"].cleanup

        assert cleanup is not None
        assert cleanup.header in outreach.webhooks["data"].secret_headers


def a_binding() -> IntegrationBinding:
    """A binding that writes the one field of the full pack."""
    return IntegrationBinding.model_validate_json(
        json.dumps(
            {
                "format": "oncefence.binding/1",
                "name": "people",
                "pack": "full",
                "principal": "people-app",
                "operations": {
                    "person.role.push": {
                        "operation": "person.update",
                        "payload_version": 1,
                        "local_object": "lead",
                        "subject": "[a-z0-9-]+",
                        "remote_object": "person",
                        "fields": {
                            "role": {"remote": "role", "type": "string", "direction": "outbound"}
                        },
                        "completion": {"command": "person.role.pushed", "version": 1},
                    }
                },
            }
        )
    )


def shipped_verdicts() -> list[tuple[dict[str, Any], SignatureVerdict]]:
    """What each shipped dialect says of the vectors that were made for it."""
    from base64 import b64decode

    lines = (FULL.parents[1] / "signatures/vectors.jsonl").read_text("utf-8").splitlines()
    vectors = [json.loads(line) for line in lines]
    dialects = {
        "hubspot_v3": load_pack("hubspot").signatures["v3"],
        "outreach": load_pack("outreach").signatures["hex"],
        "stripe": load_pack("stripe").signatures["v1"],
    }
    return [
        (
            vector,
            dialects[vector["dialect"]].verify(
                method=vector["method"],
                url=vector.get("url", ""),
                headers=vector["headers"].items(),
                body=b64decode(vector["body_base64"]),
                secrets=[Secret(vector["secret"])],
                now=datetime.fromtimestamp(vector["now_unix_s"], UTC),
            ),
        )
        for vector in vectors
        if vector["dialect"] in dialects
    ]
