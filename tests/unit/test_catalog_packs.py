"""Pack and binding files: what is shipped is sound, and every mistake is named (C562)."""

from pathlib import Path

import pytest

from oncefence.catalog.errors import CatalogError, Problem
from oncefence.catalog.loader import check, load_binding, load_pack, shipped_packs
from oncefence.catalog.view import compile_view
from oncefence.domain.errors import Refused

ROOT = Path(__file__).parents[2]
PACK = ROOT / "src/oncefence/catalog/packs/hubspot.toml"
BINDING = ROOT / "docs/examples/lead-title.binding.toml"
WRITE = 'operations."contact.update"'
PUSH = 'operations."lead.title.push"'

PACK_MISTAKES = [
    ('name = "hubspot"', 'name = "hub spot"', "name", "should match pattern"),
    ('name = "hubspot"', 'name = "other"', "name", "the file must be called other.toml"),
    ('display_name = "HubSpot"\n', "", "display_name", "is required and missing"),
    ("https://api", "http://api", "base_url", "must be https://"),
    ('hubapi.com"', 'hubapi.com/v3"', "base_url", "nothing after it"),
    ("https://api", "https://u:p@api", "base_url", "must be https://"),
    ('scheme = "bearer"', 'scheme = "basic"', "auth.scheme", "should be 'bearer'"),
    ("Bearer {token}", "Bearer", "auth.template", "{token} exactly once"),
    ("Bearer {token}", "Bearer {tokn}", "auth.template", "unknown variable {tokn}"),
    ("Bearer {token}", "Bearer {token", "auth.template", "single brace"),
    ('Accept = "app', 'Authorization = "app', "headers.authorization", "auth, media_type"),
    ('Accept = "app', '"Acc ept" = "app', 'headers."Acc ept"', "not a header name"),
    ('Accept = "application/json"', 'Accept = "a\\r\\nb"', "headers.Accept", "header value"),
    ('"X-Oncefence-Command"', '"x-oncefence-attempt"', "trace.command_header", "already set"),
    ("[objects.contact]", "[object.contact]", "object", "did you mean 'objects'?"),
    ("[0-9]{0,19}", "[0-9", "objects.contact.remote_id", "is not a regular expression"),
    ('"[1-9][0-9]{0,19}"', '".*"', "objects.contact.remote_id", "lead to another path"),
    ('"[1-9][0-9]{0,19}"', '"[^/]+"', "objects.contact.remote_id", "lead to another path"),
    ('type = "string"', 'type = "text"', "objects.contact.fields.jobtitle.type", "'string'"),
    ('type = "string"', 'typ = "string"', "objects.contact.fields.jobtitle.typ", "mean 'type'?"),
    ("empty_string", "blank", "objects.contact.fields.jobtitle.clear", "'empty_string'"),
    ('object = "contact"', 'object = "person"', f"{WRITE}.object", "unknown object 'person'"),
    ('method = "PATCH"', 'method = "GET"', f"{WRITE}.method", "should be 'PATCH'"),
    ('method = "PATCH"', 'methods = "PATCH"', f"{WRITE}.methods", "did you mean 'method'?"),
    (
        'path = "/crm/v3/objects/contacts/{remote_id}"\nendpoint_class = "crm.objects.write"',
        'path = "/crm"\nendpoint_class = "crm.objects.write"',
        f"{WRITE}.path",
        "used nowhere",
    ),
    ('contacts/{remote_id}"\nendpoint_class = "crm.objects.w', 'c/{id}"\nendpoint_class = "w',
     f"{WRITE}.path", "unknown variable {id}; known here: {remote_id}"),
    ('path = "/crm', 'path = "//crm', f"{WRITE}.path", "must be a plain path"),
    ('path = "/crm', 'path = "/../crm', f"{WRITE}.path", "must be a plain path"),
    ('path = "/crm', 'path = "crm', f"{WRITE}.path", "must begin with /"),
    ('path = "/crm', 'path = "/a@b/crm', f"{WRITE}.path", "must be a plain path"),
    ('path = "/crm/v3', 'path = "/crm?a=1', f"{WRITE}.path", "must be a plain path"),
    ("total_deadline_ms = 8000\n#", "total_deadline_ms = 50\n#",
     f"{WRITE}.total_deadline_ms", "greater than or equal to 100"),
    ("total_deadline_ms = 8000\n#", 'total_deadline_ms = "8000"\n#',
     f"{WRITE}.total_deadline_ms", "valid integer"),
    ('replay = "none"', 'replay = "maybe"', f"{WRITE}.replay", "should be 'none'"),
    ('"application/json"\nbody', '"text/plain"\nbody',
     f"{WRITE}.request.media_type", "must be application/json"),
    ('"{fields}"', '"{field}"', f"{WRITE}.request.body", "unknown variable {field}"),
    ('"{fields}"', '"{field.title}"', f"{WRITE}.request.body", "unknown field 'title'"),
    ('"{fields}"', '"x{fields}"', f"{WRITE}.request.body", "must be the whole value"),
    ('"{fields}"', '"fixed"', f"{WRITE}.request.body", "places no field"),
    ('"{fields}" }', '"{fields}", a = "{field.jobtitle}" }',
     f"{WRITE}.request.body", "places a field twice"),
    ("{ properties =", '{ "{x}" =', f"{WRITE}.request.body", "a key takes no variables"),
    ("body = {", "bodies = {", f"{WRITE}.request.bodies", "did you mean 'body'?"),
    ("success = [200]", "success = []", f"{WRITE}.answer.success", "at least 1"),
    ("success = [200]", "success = [204]", f"{WRITE}.answer.success", "204 has no body"),
    ("success = [200]", "success = [200, 200]", f"{WRITE}.answer.success", "twice"),
    ("success = [200]", "success = [2000]", f"{WRITE}.answer.success[0]", "less than or equal"),
    ("success = [200]", 'success = ["200"]', f"{WRITE}.answer.success[0]", "valid integer"),
    ("415, 422]", "415, 429]", f"{WRITE}.answer.not_applied", "429 is in rejected too"),
    ("415, 422]", "415, 200]", f"{WRITE}.answer.rejected", "200 is in success too"),
    ("415, 422]", "415, 503]", f"{WRITE}.answer.rejected", "503 tells of a fault"),
    ("{ 423 = 2 }", "{ 424 = 2 }", f"{WRITE}.answer.wait_min_s.424", "has no effect"),
    ('["id", "prop', '["id.", "prop', f"{WRITE}.answer.evidence[0]", "JMESPath expression (col"),
    ('["id", "prop', '["`true`", "prop', f"{WRITE}.answer.evidence[0]", "reads nothing"),
    ('["id", "prop', '["size(id)", "prop', f"{WRITE}.answer.evidence[0]", "no function size()"),
    ('identity = "id"\n# The form', "#", f"{WRITE}.answer.identity", "is required and missing"),
    ('"http_date"]', '"julian"]', f"{WRITE}.answer.retry_after.forms[1]", "'seconds'"),
    ('{ body = "id" }', "{}", f"{WRITE}.answer.receipt.remote_id", "either body or header"),
    ('{ body = "id" }', '{ bodi = "id" }', f"{WRITE}.answer.receipt.remote_id.bodi", "'body'?"),
    ('method = "GET"', 'method = "POST"', f"{WRITE}.lookup.method", "never a mutating method"),
    ('method = "GET"', 'method = "HEAD"', f"{WRITE}.lookup.method", "no body to compare"),
    ('"{written}"', '"{wrote}"', f"{WRITE}.lookup.query.properties", "unknown variable {wrote}"),
    ('"object_by_id"', '"guess"', f"{WRITE}.lookup.key_strength", "'object_by_id'"),
    ('"exact"', '"some"', f"{WRITE}.lookup.completeness", "'exact'"),
    ("horizon_s = 60", "horizon_s = -1", f"{WRITE}.lookup.horizon_s", "greater than or equal"),
    ("horizon_s = 60", "horizon = 60", f"{WRITE}.lookup.horizon", "did you mean 'horizon_s'?"),
    ("not_found = [404]", "not_found = [200]", f"{WRITE}.lookup.not_found", "in found too"),
    ('jobtitle = "prop', 'title = "prop', f"{WRITE}.lookup.compare.title", "mean 'jobtitle'?"),
    ('jobtitle = "prop', 'title = "prop', f"{WRITE}.lookup.compare.jobtitle", "is missing"),
    ('"iso8601"', '"rfc"', f"{WRITE}.lookup.change_time.format", "'iso8601'"),
    ("oncefence.pack/1", "oncefence.pack/2", "format", "this version reads oncefence.pack/1"),
    ('format = "oncefence.pack/1"', "", "format", "is missing; this version reads"),
    ("oncefence.pack/1", "oncefence.binding/1", "format", "a pack has oncefence.pack/1"),
    ("{ 423 = 2 }", "{ 423 = 2026-01-01 }", "", "write it as text"),
    ("[auth]", "[auth", "", "is not TOML"),
]  # fmt: skip

BINDING_MISTAKES = [
    ('pack = "hubspot"', "", "pack", "is required and missing"),
    ('"contact.update"', '"contact.push"', f"{PUSH}.operation", "unknown operation of pack"),
    ('remote_object = "contact"', 'remote_object = "deal"', f"{PUSH}.remote_object", "'contact'"),
    ('remote = "jobtitle"', 'remote = "job"', f"{PUSH}.fields.title.remote", "unknown field"),
    ('direction = "outbound"', 'direction = "both"', f"{PUSH}.fields.title.direction", "outbound"),
    ("required = true", 'required = "yes"', f"{PUSH}.fields.title.required", "valid boolean"),
    ("max_length", "maxlength", f"{PUSH}.fields.title.maxlength", "did you mean 'max_length'?"),
    ('source = "subject"', 'source = "tenant"', f"{PUSH}.lanes.source", "tenant-wide lane"),
    ('target = "link"', 'target = "org"', f"{PUSH}.lanes.target", "tenant-wide lane"),
    ('target = "link"', 'target = "links"', f"{PUSH}.lanes.target", "should be 'link'"),
    ('"[A-Za-z0-9][', '"([A-Za-z0-9][', f"{PUSH}.subject", "is not a regular expression"),
    ('field = "title" }', "field = 1.5 }", f"{PUSH}.completion.data.field", "must be a text"),
    ("version = 1\ndata", "version = 0\ndata", f"{PUSH}.completion.version", "or equal to 1"),
    ("oncefence.binding/1", "oncefence.pack/1", "format", "a binding has oncefence.binding/1"),
]


def changed(source: Path, folder: Path, old: str, new: str) -> Path:
    """A copy of `source` with one mistake in it."""
    text = source.read_text(encoding="utf-8")
    assert old in text
    copy = folder / source.name
    copy.write_text(text.replace(old, new, 1), encoding="utf-8")
    return copy


class TestShippedFiles:
    def test_are_sound_and_warn_of_nothing_that_could_be_helped(self) -> None:
        """What we ship is the first example that anybody copies."""
        report = check([PACK.parent, BINDING.parent])

        assert report.errors == ()
        # A customer shows no time of its last change.
        assert [(Path(warning.file).name, warning.key) for warning in report.warnings] == [
            ("stripe.toml", 'operations."customer.update".lookup.change_time')
        ]
        assert report.is_sound
        assert str(BINDING) in report.checked

    def test_are_found_by_name(self) -> None:
        """A pack travels in the wheel and needs no path."""
        assert "hubspot" in shipped_packs()
        assert load_pack("hubspot").digest == load_pack(PACK).digest
        assert load_pack("hubspot").base_url == "https://api.hubapi.com"


class TestPackMistake:
    @pytest.mark.parametrize(("old", "new", "key", "reason"), PACK_MISTAKES)
    def test_is_named_by_file_key_and_reason(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """The message alone has to be enough to put it right."""
        path = changed(PACK, tmp_path, old, new)

        with pytest.raises(CatalogError) as refused:
            load_pack(path)

        expected = [p for p in refused.value.problems if p.key == key and reason in p.reason]
        assert expected, str(refused.value)
        assert {p.file for p in refused.value.problems} == {str(path)}
        assert str(expected[0]) in str(refused.value)

    def test_is_listed_with_all_others(self, tmp_path: Path) -> None:
        """Nobody wants to find three mistakes in three runs."""
        path = changed(PACK, tmp_path, 'method = "PATCH"', 'method = "FETCH"')
        changed(path, tmp_path, 'replay = "none"', 'replay = "perhaps"')
        changed(path, tmp_path, "horizon_s = 60", "horizon_s = 1.5")

        with pytest.raises(CatalogError) as refused:
            load_pack(path)

        assert [problem.key for problem in refused.value.problems] == [
            f"{WRITE}.method",
            f"{WRITE}.replay",
            f"{WRITE}.lookup.horizon_s",
        ]
        assert (refused.value.file, refused.value.key) == (str(path), f"{WRITE}.method")
        assert refused.value.reason == ("should be 'PATCH', 'PUT' or 'POST'; did you mean 'PATCH'?")
        assert isinstance(refused.value, Refused)

    @pytest.mark.parametrize(
        ("addition", "key", "reason"),
        [
            ('[objects.deal]\nremote_id = "[0-9]+"\nfields.name.type = "string"\n',
             "objects.deal", "no operation uses it"),
            (f'[{WRITE}.request.headers]\naccept = "x/y"\n',
             f"{WRITE}.request.headers.accept", "set by the pack's headers already"),
            (f'[{WRITE}.request.headers]\nX-Oncefence-Attempt = "1"\n',
             "trace.attempt_header", "already set otherwise"),
            (f'[{WRITE}.request.headers]\nHost = "elsewhere"\n',
             f"{WRITE}.request.headers.host", "is not for this table"),
        ],
    )  # fmt: skip
    def test_of_a_dead_or_double_key_is_named(
        self, tmp_path: Path, addition: str, key: str, reason: str
    ) -> None:
        """A key that does nothing was meant to do something."""
        path = tmp_path / PACK.name
        path.write_text(PACK.read_text(encoding="utf-8") + addition, encoding="utf-8")

        with pytest.raises(CatalogError) as refused:
            load_pack(path)

        assert [(p.key, reason in p.reason) for p in refused.value.problems] == [(key, True)]

    def test_of_a_field_without_a_place_is_named(self, tmp_path: Path) -> None:
        """A field that no body sends could be bound and would silently never arrive."""
        path = changed(PACK, tmp_path, "{ properties = ", "{ other = 1, properties = ")
        changed(path, tmp_path, '"{fields}"', '{ a = "{field.jobtitle}" }')
        field = "[objects.contact.fields.jobtitle]"
        city = '[objects.contact.fields.city]\ntype = "string"\n'
        changed(path, tmp_path, field, city + field)

        with pytest.raises(CatalogError, match=r"contact\.fields\.city: no operation's body"):
            load_pack(path)


class TestBindingMistake:
    @pytest.mark.parametrize(("old", "new", "key", "reason"), BINDING_MISTAKES)
    def test_is_named_by_file_key_and_reason(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """The message alone has to be enough to put it right."""
        path = changed(BINDING, tmp_path, old, new)

        with pytest.raises(CatalogError) as refused:
            compile_view(load_pack("hubspot"), load_binding(path))

        assert refused.value.file == str(path)
        assert [p.key for p in refused.value.problems] == [key]
        assert reason in refused.value.reason

    def test_of_two_keys_for_one_field_is_named(self, tmp_path: Path) -> None:
        """Two payload keys for one remote field would let one overwrite the other."""
        path = tmp_path / BINDING.name
        second = f'[{PUSH}.fields.name]\nremote = "jobtitle"\ntype = "string"\n'
        text = BINDING.read_text(encoding="utf-8")
        path.write_text(text + second + 'direction = "outbound"\n', encoding="utf-8")

        with pytest.raises(CatalogError, match="jobtitle is written by title already"):
            compile_view(load_pack("hubspot"), load_binding(path))

    def test_of_the_wrong_pack_is_named(self, tmp_path: Path) -> None:
        """A binding is made for one pack and fits no other by chance."""
        binding = load_binding(changed(BINDING, tmp_path, '"hubspot"', '"other"'))

        with pytest.raises(CatalogError, match="pack: names 'other'"):
            compile_view(load_pack("hubspot"), binding)

    def test_of_a_length_over_the_providers_is_named(self, tmp_path: Path) -> None:
        """A value that the provider would refuse is refused before it is accepted."""
        pack = load_pack(changed(PACK, tmp_path, 'clear = "empty_string"', "max_length = 100"))

        with pytest.raises(CatalogError, match=r"title\.max_length: .* takes at most 100"):
            compile_view(pack, load_binding(BINDING))


class TestLoadPack:
    def test_prefers_the_folders_of_the_user(self, tmp_path: Path) -> None:
        """A provider moves its paths; a user need not wait for a release of ours."""
        changed(PACK, tmp_path, "/crm/v3/objects/contacts", "/crm/objects/2026-09/contacts")

        pack = load_pack("hubspot", folders=[tmp_path / "none", tmp_path])

        assert pack.operations["contact.update"].path.startswith("/crm/objects/2026-09/")
        assert pack.source == str(tmp_path / PACK.name)

    def test_says_where_it_looked(self, tmp_path: Path) -> None:
        """An unknown name is mostly a forgotten folder."""
        with pytest.raises(CatalogError) as refused:
            load_pack("nosuch", folders=[tmp_path])

        assert f"no pack 'nosuch' in {tmp_path}, the shipped ones" in str(refused.value)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (None, "cannot be read"),
            (b"\xff", "is not UTF-8 (byte 0)"),
            (b"#" * 1_048_577, "has more than 1048576 bytes"),
        ],
    )
    def test_refuses_a_file_that_is_no_text(
        self, tmp_path: Path, content: bytes | None, reason: str
    ) -> None:
        """A wrong path gets a message and no traceback."""
        path = tmp_path / "odd.toml"
        if content is not None:
            path.write_bytes(content)

        with pytest.raises(CatalogError) as refused:
            load_pack(path)

        assert reason in refused.value.reason


class TestCheck:
    def test_goes_on_after_a_bad_file(self, tmp_path: Path) -> None:
        """One run tells everything about a folder."""
        changed(PACK, tmp_path, 'method = "PATCH"', 'method = "FETCH"')
        changed(BINDING, tmp_path, 'target = "link"', 'target = "tenant"')
        (tmp_path / "odd.toml").write_text("format = 1\n", encoding="utf-8")

        report = check([tmp_path, tmp_path / "absent.toml"])

        assert not report.is_sound
        assert {Path(problem.file).name for problem in report.errors} == {
            "hubspot.toml",
            "lead-title.binding.toml",
            "odd.toml",
            "absent.toml",
        }

    def test_holds_a_binding_against_the_pack_beside_it(self, tmp_path: Path) -> None:
        """The pack that is being written counts, not the one that was shipped."""
        changed(PACK, tmp_path, "[objects.contact.fields.jobtitle]", "[objects.contact.fields.job]")
        path = tmp_path / PACK.name
        changed(path, tmp_path, 'jobtitle = "properties', 'job = "properties')
        binding = changed(BINDING, tmp_path, "required = true", "required = false")

        report = check([tmp_path])

        assert [(p.file, p.key) for p in report.errors] == [
            (str(binding), f"{PUSH}.fields.title.remote")
        ]

    def test_names_a_pack_that_is_not_there(self, tmp_path: Path) -> None:
        """The binding's file is what has to be changed, so it is the one named."""
        binding = changed(BINDING, tmp_path, 'pack = "hubspot"', 'pack = "nosuch"')

        report = check([binding])

        assert [(p.file, p.key) for p in report.errors] == [(str(binding), "pack")]

    def test_refuses_two_packs_of_one_name(self, tmp_path: Path) -> None:
        """Which of two packs a binding means must not depend on the order of files."""
        copy = changed(PACK, tmp_path, "8000", "7000")

        report = check([PACK, copy])

        assert [(p.file, p.key) for p in report.errors] == [(str(copy), "name")]

    @pytest.mark.parametrize(
        ("old", "new", "key", "reason"),
        [
            ("horizon_s = 60", "horizon_s = 25951", f"{WRITE}.lookup.horizon_s", "25950 s"),
            ("change_time = {", "# {", f"{WRITE}.lookup.change_time", "ends with a person"),
        ],
    )
    def test_warns_of_what_is_risky(
        self, tmp_path: Path, old: str, new: str, key: str, reason: str
    ) -> None:
        """A pack may be sound and still leave every unknown to people (C276)."""
        report = check([changed(PACK, tmp_path, old, new)])

        assert report.errors == ()
        assert [(p.key, reason in p.reason) for p in report.warnings] == [(key, True)]

    def test_warns_of_an_operation_without_lookup(self, tmp_path: Path) -> None:
        """Without a lookup each unknown goes to a person, which the author should know."""
        text = PACK.read_text(encoding="utf-8")
        path = tmp_path / PACK.name
        path.write_text(text[: text.index(f"[{WRITE}.lookup]")], encoding="utf-8")

        report = check([path])

        assert report.errors == ()
        assert [problem.key for problem in report.warnings] == [f"{WRITE}.lookup"]

    def test_takes_a_horizon_as_long_as_the_ladder(self, tmp_path: Path) -> None:
        """The bound itself is fine: the last lookup comes right then."""
        report = check([changed(PACK, tmp_path, "horizon_s = 60", "horizon_s = 25950")])

        assert report.warnings == ()

    def test_says_that_a_folder_is_empty(self, tmp_path: Path) -> None:
        """Checking nothing must not look like success."""
        assert check([tmp_path]).errors == (
            Problem(file=str(tmp_path), key="", reason="the folder holds no .toml file"),
        )


def test_an_error_without_problems_cannot_be_made() -> None:
    """A refusal always says what to put right."""
    with pytest.raises(ValueError, match="at least one"):
        CatalogError([])
