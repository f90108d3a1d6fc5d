"""Packs with one mistake each, made of the shipped ones, and the one check that finds it."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BadPack:
    """One mistake in a pack that is right otherwise."""

    name: str
    pack: str
    operation: str
    check: str
    changes: tuple[tuple[str, str], ...]
    """What stands there, and what the mistake makes of it."""

    def write(self, folder: Path) -> Path:
        """The pack's file, of the pack's name, so that the same provider is played."""
        text = (files("oncefence.catalog") / "packs" / f"{self.pack}.toml").read_text("utf-8")
        for before, after in self.changes:
            at = text.index(f'[operations."{self.operation}"]') if "[objects" not in before else 0
            head, tail = text[:at], text[at:]
            assert before in tail, f"{self.name}: the shipped pack has no {before!r} any more"
            text = head + tail.replace(before, after, 1)
        path = folder / self.name / f"{self.pack}.toml"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        return path


BAD_PACKS = (
    BadPack(
        name="bad_media_type",
        pack="hubspot",
        operation="contact.update",
        check="success.media_type",
        changes=(("success = [200]", 'success = [200]\nmedia_types = ["application/hal+json"]'),),
    ),
    BadPack(
        name="bad_contradiction",
        pack="hubspot",
        operation="contact.update",
        check="success.accepted",
        changes=(("\"status == 'error'\"]", '"properties"]'),),
    ),
    BadPack(
        name="bad_error_code_path",
        pack="hubspot",
        operation="contact.update",
        check="refusal.code",
        changes=(('["category", "errorType"]', '["errorCode"]'),),
    ),
    BadPack(
        name="bad_condition",
        pack="hubspot",
        operation="contact.update",
        check="condition.stale",
        changes=(
            (
                'replay = "none"',
                'replay = "none"\ncondition = { header = "If-Match", payload_key = "known_as" }',
            ),
            ("409, 415, 422]", "409, 412, 415, 422]"),
        ),
    ),
    BadPack(
        name="bad_default_for_what_is_empty",
        pack="hubspot",
        operation="contact.update",
        check="lookup.cleared",
        changes=(('"properties.company"', "\"properties.company || 'none'\""),),
    ),
    BadPack(
        name="bad_first_of_several",
        pack="stripe",
        operation="customer.create",
        check="lookup.twins",
        changes=(('items = "data"', 'items = "data[:1]"'),),
    ),
    BadPack(
        name="bad_identity_path",
        pack="hubspot",
        operation="contact.update",
        check="success.identity",
        changes=(('identity = "id"', 'identity = "vid"'),),
    ),
    BadPack(
        name="bad_evidence",
        pack="hubspot",
        operation="contact.update",
        check="success.evidence",
        changes=(('"properties", "updatedAt"]', '"properties", "updated_at"]'),),
    ),
    BadPack(
        name="bad_success_status",
        pack="hubspot",
        operation="contact.update",
        check="success.status",
        changes=(("success = [200]", "success = [202]"),),
    ),
    BadPack(
        name="bad_request_media_type",
        pack="outreach",
        operation="prospect.update",
        check="request.taken",
        changes=(('media_type = "application/vnd.api+json"', 'media_type = "application/json"'),),
    ),
    BadPack(
        name="bad_503_is_not_applied",
        pack="hubspot",
        operation="contact.update",
        check="server_error.applied",
        changes=(("not_applied = [423, 429, 477]", "not_applied = [423, 429, 477, 503]"),),
    ),
    BadPack(
        name="bad_400_is_not_final",
        pack="hubspot",
        operation="contact.update",
        check="refusal.final",
        changes=(
            ("rejected = [400, 403", "rejected = [403"),
            ("not_applied = [423", "not_applied = [400, 423"),
        ),
    ),
    BadPack(
        name="bad_clear_rule",
        pack="hubspot",
        operation="contact.update",
        check="field.clear",
        changes=(
            (
                '[objects.contact.fields.jobtitle]\ntype = "string"\nclear = "empty_string"',
                '[objects.contact.fields.jobtitle]\ntype = "string"\nclear = "null"',
            ),
        ),
    ),
    BadPack(
        name="bad_compare_path",
        pack="hubspot",
        operation="contact.update",
        check="lookup.applied",
        changes=(('company = "properties.company"', 'company = "properties.companyname"'),),
    ),
    BadPack(
        name="bad_change_time_of_the_making",
        pack="hubspot",
        operation="contact.update",
        check="lookup.other_hand",
        changes=(('change_time = { value = "updatedAt"', 'change_time = { value = "createdAt"'),),
    ),
    BadPack(
        name="bad_change_time_format",
        pack="outreach",
        operation="prospect.update",
        check="lookup.not_applied",
        changes=(('format = "iso8601", skew_s = 5', 'format = "epoch_ms", skew_s = 5'),),
    ),
    BadPack(
        name="bad_not_found_status",
        pack="outreach",
        operation="prospect.update",
        check="lookup.missing_record",
        changes=(("not_found = [404]", "not_found = [410]"),),
    ),
    BadPack(
        name="bad_retry_after_forms",
        pack="outreach",
        operation="prospect.update",
        check="not_applied.proven",
        changes=(('{ forms = ["seconds", "epoch_s", "iso_utc"] }', '{ forms = ["seconds"] }'),),
    ),
    BadPack(
        name="bad_retry_after_header",
        pack="outreach",
        operation="prospect.update",
        check="wait.provider",
        changes=(("retry_after = { forms", 'retry_after = { header = "Retry-At", forms'),),
    ),
    BadPack(
        name="bad_limit_name",
        pack="hubspot",
        operation="contact.update",
        check="wait.named",
        changes=(('value = "policyName"', 'value = "policy"'),),
    ),
    BadPack(
        name="bad_rate_header",
        pack="outreach",
        operation="prospect.update",
        check="wait.rates",
        changes=(('"X-RateLimit-Remaining"', '"X-RateLimit-Left"'),),
    ),
    BadPack(
        name="bad_error_code",
        pack="hubspot",
        operation="contact.update",
        check="token.hidden",
        changes=(
            ('error_code = ["category", "errorType"]', 'error_code = ["message", "category"]'),
        ),
    ),
    BadPack(
        name="bad_key_window",
        pack="stripe",
        operation="customer.update",
        check="key.window",
        changes=(("window_s = 86400", "window_s = 172800"),),
    ),
    BadPack(
        name="bad_key_header",
        pack="stripe",
        operation="customer.update",
        check="key.repeat",
        changes=(('header = "Idempotency-Key"', 'header = "Idempotence-Key"'),),
    ),
    BadPack(
        name="bad_replayed_mark",
        pack="stripe",
        operation="customer.update",
        check="key.kept",
        changes=(('header = "Idempotent-Replayed"', 'header = "Idempotency-Replayed"'),),
    ),
    BadPack(
        name="bad_twin_is_refused",
        pack="stripe",
        operation="customer.update",
        check="key.twin",
        changes=(
            ("rejected = [400, 402, 403, 404]", "rejected = [400, 402, 403, 404, 409]"),
            (
                (
                    '[[operations."customer.update".answer.not_applied_when]]\n'
                    "statuses = [409]\nbody = \"error.code == 'idempotency_key_in_use'\"\n"
                ),
                "",
            ),
        ),
    ),
    BadPack(
        name="bad_capped_list_is_exact",
        pack="stripe",
        operation="customer.create",
        check="lookup.cut",
        changes=(
            ('completeness = "capped"', 'completeness = "exact"'),
            ('cap = 10\nmore = "has_more"\n', ""),
        ),
    ),
    BadPack(
        name="bad_horizon",
        pack="stripe",
        operation="customer.create",
        check="lookup.horizon",
        changes=(("horizon_s = 3600", "horizon_s = 1"),),
    ),
    BadPack(
        name="bad_remote_id",
        pack="hubspot",
        operation="contact.update",
        check="record.id",
        changes=(
            (
                '[objects.contact]\nremote_id = "[1-9][0-9]{0,19}"',
                '[objects.contact]\nremote_id = "[A-Z]{2}[0-9]{6}"',
            ),
        ),
    ),
)
