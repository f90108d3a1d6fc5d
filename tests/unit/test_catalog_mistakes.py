"""Every name is checked when a pack is read, and no key is dead (C562)."""

from pathlib import Path

import pytest

from oncefence.catalog.errors import CatalogError
from oncefence.catalog.loader import check, load_binding, load_pack
from oncefence.catalog.view import compile_view

PACKS = Path(__file__).parents[2] / "src/oncefence/catalog/packs"
QUARRY = Path(__file__).parents[1] / "data/packs/quarry.toml"
CREATE = 'operations."customer.create"'
UPDATE = 'operations."customer.update"'
PROSPECT = 'operations."prospect.update"'
STONE = 'operations."stone.set"'
KEY_TABLE = """[operations."customer.update".idempotency]
header = "Idempotency-Key"
window_s = 86400
key_max_length = 255
replayed = { header = "Idempotent-Replayed", value = "true" }
"""
SEARCH = """[operations."customer.create".lookup.search]
items = "data"
match = { "metadata.oncefence_command" = "{command}" }
cap = 10
more = "has_more"
"""
EVIDENCE = 'evidence = ["id", "object == \'customer\' || `null`"]\n'
EMPTY = "an empty answer too"
CAPPED = 'completeness = "capped"'
MATCH = '"metadata.oncefence_command" = "{command}"'

STRIPE_MISTAKES = [
    # Sending again.
    (
        'replay = "idempotency_key"\n\n[operations."customer.update',
        'replay = "none"\n\n[operations."customer.update',
        f"{UPDATE}.idempotency",
        "has no effect: replay is 'none'",
    ),
    (KEY_TABLE, "", f"{UPDATE}.idempotency", "is required and missing"),
    (
        'replay = "idempotency_key"',
        'replay = "idempotencykey"',
        f"{CREATE}.replay",
        "mean 'idempotency_key'?",
    ),
    (
        "window_s = 86400",
        "window_s = 10",
        f"{CREATE}.idempotency.window_s",
        "greater than or equal to 60",
    ),
    (
        "window_s = 86400",
        "window = 86400",
        f"{CREATE}.idempotency.window",
        "did you mean 'window_s'?",
    ),
    (
        "key_max_length = 255",
        "key_max_length = 20",
        f"{CREATE}.idempotency.key_max_length",
        "our keys have 36",
    ),
    (
        'header = "Idempotency-Key"',
        'header = "Authorization"',
        f"{CREATE}.idempotency.header",
        "already set",
    ),
    # Creates.
    ('kind = "create"', 'kind = "make"', f"{CREATE}.kind", "should be 'update' or 'create'"),
    ('kind = "create"\n', "", f"{CREATE}.path", "names no record"),
    ('kind = "create"\n', "", f"{CREATE}.lookup.kind", "must be 'by_id'"),
    (
        'path = "/v1/customers"',
        'path = "/v1/customers/{remote_id}"',
        f"{CREATE}.path",
        "learns it from the answer",
    ),
    (
        'identity = "id"\nerror',
        "error",
        f"{CREATE}.answer.identity",
        "a create learns its record's id",
    ),
    (
        'evidence = ["id", "object == \'customer\' || `null`"]\nidentity = "id"\nerror',
        'evidence = []\nidentity = "id"\nerror',
        f"{CREATE}.answer.evidence",
        "a create needs proof",
    ),
    (
        'metadata = { oncefence_command = "{command}" }',
        "",
        f"{CREATE}.lookup.search.match",
        "writes nowhere",
    ),
    (
        '"{command}" }\n\n[operations."customer.create".answer]',
        '"{comand}" }\n\n[operations."customer.create".answer]',
        f"{CREATE}.request.body",
        "unknown variable {comand}",
    ),
    # What an answer that holds nothing would show too.
    *(
        (EVIDENCE, f'evidence = ["{expression}"]\n', f"{CREATE}.answer.evidence", EMPTY)
        for expression in ("[id]", "{ it: id }", "id || 'x'", "&id", "type(id)", "!error")
    ),
    ('identity = "id"', "identity = 'id || `1`'", f"{CREATE}.answer.identity", EMPTY),
    (
        "error.code == 'idempotency_key_in_use'",
        "error.code != 'lost'",
        f"{CREATE}.answer.not_applied_when[0].body",
        EMPTY,
    ),
    (
        'identity = "id"',
        'identity = "id"\nrefusals = [{ statuses = [200], body = "!id" }]',
        f"{CREATE}.answer.refusals[0].body",
        EMPTY,
    ),
    ('evidence = ["object"]', 'evidence = ["!deleted"]', f"{UPDATE}.lookup.evidence", EMPTY),
    (
        'identity = "id"\nerror',
        f'identity = "{"(" * 900}id{")" * 900}"\nerror',
        f"{CREATE}.answer.identity",
        "nested too deeply",
    ),
    # Lookups by query.
    ('kind = "by_query"\n', "", f"{CREATE}.lookup.kind", "must be 'by_query'"),
    ('kind = "by_query"', 'kind = "by_id"', f"{CREATE}.lookup.kind", "must be 'by_query'"),
    (SEARCH, "", f"{CREATE}.lookup.search", "is required and missing"),
    (":'{command}'\"", '"', f"{CREATE}.lookup.query", "asks the same for every create"),
    ("'{command}'\"", "'{remote_id}'\"", f"{CREATE}.lookup.path", "is not known yet"),
    (
        "'{command}'\"",
        "'{field.mail}'\"",
        f"{CREATE}.lookup.query",
        "unknown written field 'mail'; did you mean 'email'?",
    ),
    (
        'path = "/v1/customers/search"',
        'path = "/v1/customers/{field.email}"',
        f"{CREATE}.lookup.path",
        "unknown variable",
    ),
    (
        'key_strength = "idempotency_key"',
        'key_strength = "object_by_id"',
        f"{CREATE}.lookup.key_strength",
        "for a lookup by query",
    ),
    (
        'key_strength = "idempotency_key"',
        'key_strength = "unique_property"',
        f"{CREATE}.lookup.search.created_time",
        "is required",
    ),
    (MATCH, 'email = "{field.email}"', f"{CREATE}.lookup.search.match", "must use {command}"),
    (
        MATCH,
        'object = "customer"',
        f"{CREATE}.lookup.search.match.object",
        "the same for every create",
    ),
    (
        MATCH,
        '"metadata[" = "{command}"',
        f'{CREATE}.lookup.search.match."metadata["',
        "not a JMESPath",
    ),
    ("cap = 10\n", "", f"{CREATE}.lookup.search.cap", "where completeness is 'capped'"),
    (CAPPED, 'completeness = "exact"', f"{CREATE}.lookup.search.cap", "has no effect"),
    (CAPPED, 'completeness = "exact"', f"{CREATE}.lookup.search.more", "has no effect"),
    (
        'more = "has_more"',
        'more = "has_more"\ncreated_time = { value = "created", format = "epoch_s" }',
        f"{CREATE}.lookup.search.created_time",
        "has no effect",
    ),
    (
        CAPPED,
        f"{CAPPED}\nnot_found = [404]",
        f"{CREATE}.lookup.not_found",
        "has no effect on a lookup by query",
    ),
    (
        CAPPED,
        f'{CAPPED}\ncompare = {{ name = "name" }}',
        f"{CREATE}.lookup.compare",
        "has no effect",
    ),
    (
        CAPPED,
        f'{CAPPED}\nchange_time = {{ value = "x", format = "epoch_s" }}',
        f"{CREATE}.lookup.change_time",
        "has no effect",
    ),
    # Forms.
    (
        'phone = { type = "string", clear = "empty_string" }',
        'phone = { type = "string", clear = "null" }',
        f"{UPDATE}.request.media_type",
        "a form has no null, by which phone is cleared",
    ),
    (
        'phone = { type = "string", clear = "empty_string" }',
        'phone = { type = "integer", as_text = true }',
        "objects.customer.fields.phone.as_text",
        "in a form everything is text",
    ),
    (
        "x-www-form-urlencoded",
        "x-www-form",
        f"{CREATE}.request.media_type",
        "must be application/json",
    ),
    # Answers.
    (
        "statuses = [409]",
        "statuses = [429]",
        f"{CREATE}.answer.not_applied_when[0].statuses",
        "in not_applied anyway",
    ),
    (
        "statuses = [409]",
        "statuses = [400]",
        f"{CREATE}.answer.not_applied_when[0].statuses",
        "in rejected too",
    ),
    (
        "statuses = [409]\nbody = ",
        "statuses = [409]\nboby = ",
        f"{CREATE}.answer.not_applied_when[0].boby",
        "mean 'body'?",
    ),
    (
        "statuses = [409]\nbody = \"error.code == 'idempotency_key_in_use'\"",
        "statuses = [409]",
        f"{CREATE}.answer.not_applied_when[0]",
        "needs body or retry_after",
    ),
]

OUTREACH_MISTAKES = [
    (
        "refusals = [{ statuses = [200]",
        "refusals = [{ statuses = [422]",
        "refusals[0].statuses",
        "in rejected whatever",
    ),
    (
        "refusals = [{ statuses = [200]",
        "refusals = [{ statuses = [429]",
        "refusals[0].statuses",
        "in not_applied too",
    ),
    (
        "refusals = [{ statuses = [200]",
        "refusals = [{ statuses = [500]",
        "refusals[0].statuses",
        "tells of a fault",
    ),
    (
        "refusals = [{ statuses = [200]",
        "refusals = [{ status = [200]",
        "refusals[0].status",
        "mean 'statuses'?",
    ),
    ('body = "errors" }]', 'body = "errors[" }]', "refusals[0].body", "is not a JMESPath"),
    ('"epoch_s", "iso_utc"] }', '"seconds"] }', "retry_after.forms", "names one twice"),
    ('"epoch_s", "iso_utc"] }', '"isoutc"] }', "retry_after.forms[1]", "did you mean 'iso_utc'?"),
    (
        '"application/json"]',
        '"application/json; charset=utf-8"]',
        "media_types[1]",
        "without parameters",
    ),
    ('remaining = "X-RateLimit-Remaining"\n', "", "rate.hourly.remaining", "is required"),
    (
        'remaining = "X-RateLimit-Remaining"',
        'remainder = "X"',
        "rate.hourly.remainder",
        "mean 'remaining'?",
    ),
    ("success = [200]", "success = [200, 207]", "items", "207 tells of each input apart"),
    ("success = [200]", "success = [200, 303]", "success", "303 is not followed"),
    ("success = [200]", "success = [200, 304]", "success", "304 cannot be there"),
    (
        'identity = "data.id"\nmedia',
        "media",
        "identity",
        "is required and missing where there is evidence",
    ),
]

QUARRY_MISTAKES = [
    # What the wire would never send.
    *(
        (
            'path = "/stones/{remote_id}"',
            f"path = '/stones{letter}/{{remote_id}}'",
            f"{STONE}.lookup.path",
            f"holds {letter!r}",
        )
        for letter in '"<>^`|'
    ),
    (
        'path = "/stones/{remote_id}/facts"',
        "path = '/stones/{remote_id}/<facts>'",
        f"{STONE}.path",
        "holds '<'",
    ),
    *(
        ("X-Quarry-Key", header, "auth.header", "is the client's own")
        for header in ("Host", "Cookie", "Content-Type", "X-HTTP-Method-Override")
    ),
    ('template = "{token}"', 'template = "{token}\\n"', "auth.template", "not a header value"),
    ('template = "{token}"', 'template = "\u00e9{token}"', "auth.template", "not a header value"),
    *(
        (
            "[objects.stone]",
            f'[headers]\n{header} = "x"\n[objects.stone]',
            f"headers.{header.lower()}",
            why,
        )
        for header, why in (
            ("Accept-Encoding", "the client sets it"),
            ("Keep-Alive", "the client sets it"),
            ("Proxy-Connection", "the client sets it"),
            ("X-HTTP-Method-Override", "names another method"),
        )
    ),
    (
        'path = "/stones/{remote_id}"',
        'path = "/stones/{remote_id}"\nquery = { _method = "DELETE" }',
        f"{STONE}.lookup.query._method",
        "names another method",
    ),
    *(
        ("https://stones.example", f"https://{host}", "base_url", "must be https://")
        for host in ("stones.example.", "-stones.example", "st\u00f6nes.example", "s" * 64)
    ),
    ("412, 422]", "422]", f"{STONE}.condition.failed", "412 must be in answer.rejected"),
    ('header = "If-Match"', 'header = "Content-Type"', f"{STONE}.condition.header", "already set"),
    (
        'payload_key = "version"',
        'payload = "version"',
        f"{STONE}.condition.payload",
        "did you mean 'payload_key'?",
    ),
    (
        'payload_key = "version"',
        'payload_key = "version", form = "httpdate"',
        f"{STONE}.condition.form",
        "mean 'http_date'?",
    ),
    (
        'method = "PUT"',
        'kind = "create"\nmethod = "PUT"',
        f"{STONE}.condition",
        "a create has no record",
    ),
    (
        "polished = { type",
        "polished = { as_text = true, max_length = 3, type",
        "objects.stone.fields.polished.max_length",
        "on the type boolean",
    ),
    (
        "cut_on = { type",
        "cut_on = { as_text = true, type",
        "objects.stone.fields.cut_on.as_text",
        "which is text anyway",
    ),
    (
        '"date_epoch_ms"',
        '"date_epoch"',
        "objects.stone.fields.due_on.type",
        "did you mean 'date_epoch_ms'?",
    ),
    (
        "success = [204]",
        'media_types = ["text/json"], success = [204]',
        f"{STONE}.answer.media_types",
        "no success answer has a body",
    ),
    (
        "evidence = [] }",
        'evidence = ["a"], identity = "b" }',
        f"{STONE}.answer.success",
        "204 has no body",
    ),
    (
        "evidence = [] }",
        'evidence = [], identity = "b" }',
        f"{STONE}.answer.success",
        "declare evidence = []",
    ),
    (
        "not_applied = [429], ",
        'retry_after = { header = "X" }, ',
        f"{STONE}.answer.retry_after",
        "no answer permits another attempt",
    ),
    (
        "not_applied = [429], ",
        'wait_by = { value = "a", waits = { b = 1 } }, ',
        f"{STONE}.answer.wait_by",
        "no answer permits",
    ),
    (
        "evidence = [] }",
        'evidence = [], wait_by = { value = "a", waits = { b = 0 } } }',
        f"{STONE}.answer.wait_by.waits.b",
        "from 1 to 86400",
    ),
    (
        "evidence = [] }",
        'evidence = [], wait_by = { value = "a", waits = { b = true } } }',
        f"{STONE}.answer.wait_by.waits.b",
        "next_utc_midnight",
    ),
    (
        "evidence = [] }",
        'evidence = [], wait_by = { value = "a", waits = { "b c" = 1 } } }',
        f"{STONE}.answer.wait_by.waits",
        "is never read",
    ),
    (
        "evidence = [] }",
        'evidence = [], items = { results = "a", id = "b", errors = "c", error_ids = "d" } }',
        f"{STONE}.answer.items.statuses",
        "207 must be in success",
    ),
    (
        'completeness = "exact"',
        'completeness = "capped"',
        f"{STONE}.lookup.completeness",
        "must be 'exact'",
    ),
    (
        'key_strength = "object_by_id"',
        'key_strength = "fuzzy"',
        f"{STONE}.lookup.key_strength",
        "must be 'object_by_id'",
    ),
    ("not_found = [404]\n", "", f"{STONE}.lookup.not_found", "is required and missing"),
    (
        "not_found = [404]\n",
        'not_found = [404]\nsearch = { items = "a", match = { b = "{command}" } }\n',
        f"{STONE}.lookup.search",
        "has no effect",
    ),
    (
        "not_found = [404]\n",
        'not_found = [404]\nquery = { a = "{field.grade}" }\n',
        f"{STONE}.lookup.query",
        "reads by {remote_id}",
    ),
]


def mistaken(folder: Path, source: Path, old: str, new: str) -> Path:
    text = source.read_text(encoding="utf-8")
    assert old in text, old
    path = folder / source.name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def assert_named(path: Path, key: str, reason: str) -> None:
    with pytest.raises(CatalogError) as refused:
        load_pack(path)

    problems = refused.value.problems
    assert any(problem.key == key and reason in problem.reason for problem in problems), str(
        refused.value
    )
    assert {problem.file for problem in problems} == {str(path)}


class TestMistake:
    @pytest.mark.parametrize(("old", "new", "key", "reason"), STRIPE_MISTAKES)
    def test_in_creates_keys_forms_and_queries_is_named(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """By file, key and reason, and with what was probably meant."""
        assert_named(mistaken(tmp_path, PACKS / "stripe.toml", old, new), key, reason)

    @pytest.mark.parametrize(("old", "new", "key", "reason"), OUTREACH_MISTAKES)
    def test_in_the_meaning_of_answers_is_named(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """A rule that can never apply was meant to apply."""
        path = mistaken(tmp_path, PACKS / "outreach.toml", old, new)

        assert_named(path, f"{PROSPECT}.answer.{key}", reason)

    @pytest.mark.parametrize(("old", "new", "key", "reason"), QUARRY_MISTAKES)
    def test_in_types_conditions_and_lookups_is_named(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """The shortest pack is checked like the longest."""
        assert_named(mistaken(tmp_path, QUARRY, old, new), key, reason)

    @pytest.mark.parametrize(
        ("old", "new", "key", "reason"),
        [
            ('"{fields}"', "9" * 5_000, "", "a number that is too long"),
            ('"{fields}"', "0x" + "f" * 5_000, "", "a number that is too long"),
            ('"{fields}"', "[" * 3_000 + "]" * 3_000, "", "nested too deeply"),
            ('"{fields}"', "{a=" * 300 + "1" + "}" * 300, "", "recursion limit"),
            ("ST[0-9]{6}", "(" * 3_000 + "a" + ")" * 3_000, "objects.stone.remote_id", "too many"),
            ("ST[0-9]{6}", "a{99999999999999999999}", "objects.stone.remote_id", "too many"),
        ],
    )
    def test_that_no_reader_takes_is_named(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """Whatever a file holds, its author is told in one line and not by a traceback."""
        assert_named(mistaken(tmp_path, QUARRY, old, new), key, reason)

    def test_that_has_no_end_is_read_as_far_as_a_file_may_be_long(self, tmp_path: Path) -> None:
        """A name that leads to a device must not fill the memory."""
        (tmp_path / "endless.toml").symlink_to("/dev/zero")

        assert_named(tmp_path / "endless.toml", "", "has more than")

    def test_of_a_header_that_is_set_twice_is_named(self, tmp_path: Path) -> None:
        """Key and condition share the request with every other header."""
        path = mistaken(
            tmp_path,
            PACKS / "stripe.toml",
            'auth]\nscheme = "bearer"',
            'auth]\nscheme = "bearer"\n[headers]\nIdempotency-Key = "1"\n'
            '[trace]\ncommand_header = "idempotency-key"',
        )

        assert_named(path, f"{CREATE}.idempotency.header", "already set otherwise")
        assert_named(path, "trace.command_header", "already set otherwise")


class TestRisk:
    @pytest.mark.parametrize(
        ("source", "old", "new", "key"),
        [
            (PACKS / "stripe.toml", 'key_strength = "idempotency_key"', 'key_strength = "fuzzy"',
             f"{CREATE}.lookup.key_strength"),
            (QUARRY, "success = [204]", "success = [200, 204]", f"{STONE}.answer.evidence"),
        ],
    )  # fmt: skip
    def test_is_a_warning(self, tmp_path: Path, source: Path, old: str, new: str, key: str) -> None:
        """It may be all that the provider gives, and the author should know."""
        report = check([mistaken(tmp_path, source, old, new)])

        assert report.errors == ()
        assert key in [problem.key for problem in report.warnings]


class TestBinding:
    def of(self, folder: Path, pack: str | Path, text: str) -> str:
        path = folder / "it.toml"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CatalogError) as refused:
            compile_view(load_pack(pack), load_binding(path))
        return str(refused.value)

    HEAD = """
format = "oncefence.binding/1"
name = "it"
pack = "{pack}"
principal = "main"

[operations."it"]
operation = "{operation}"
payload_version = 1
local_object = "thing"
subject = ".+"
remote_object = "{remote}"
completion = {{ command = "done", version = 1 }}
"""

    def test_must_require_what_a_create_is_found_by(self, tmp_path: Path) -> None:
        """Without it there would be no way to tell what became of the create."""
        path = mistaken(
            tmp_path,
            PACKS / "stripe.toml",
            "'{command}'\"",
            "'{command}' OR email:'{field.email}'\"",
        )
        head = self.HEAD.format(pack="stripe", operation="customer.create", remote="customer")
        field = 'fields.email = { remote = "email", type = "string", direction = "outbound" }'

        assert "must bind email with required = true" in self.of(tmp_path, path, head + field)

    def test_must_leave_the_key_of_a_condition_free(self, tmp_path: Path) -> None:
        """One payload key cannot be both a field and the condition."""
        head = self.HEAD.format(pack="quarry", operation="stone.set", remote="stone")
        field = 'fields.version = { remote = "grade", type = "string", direction = "outbound" }'

        assert "payload key of stone.set's condition" in self.of(tmp_path, QUARRY, head + field)

    def test_has_the_types_of_the_pack(self, tmp_path: Path) -> None:
        """A length of a number was meant as something else."""
        head = self.HEAD.format(pack="quarry", operation="stone.set", remote="stone")
        fields = """
fields.a = { remote = "pieces", type = "string", direction = "outbound" }
fields.b = { remote = "price", type = "number", max_length = 3, direction = "outbound" }
"""
        found = self.of(tmp_path, QUARRY, head + fields)

        assert "fields.a.type: is string, but pieces is integer" in found
        assert "fields.b.max_length: has no effect on the type number" in found
