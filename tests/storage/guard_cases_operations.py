"""
What the database must refuse of pauses, operators, the audit's chain, readings, and of what a
work item has since they came: each case breaks exactly one rule (see `guard_cases`).
"""

from tests.storage.guard_statements import (
    ORG,
    change,
    check,
    claim,
    copy,
    item,
    leave,
    said,
    unique,
)
from tests.storage.lifecycle_rows import CLAIM, NO_LEASE

PAUSE = f"WHERE {ORG} AND pause_id = '$pause'"
ENDED = f"WHERE {ORG} AND pause_id = '$ended_pause'"
OPERATOR = "WHERE operator_id = '$operator'"
REVOKED = "WHERE operator_id = '$revoked_operator'"
READING = "WHERE view_name = 'guards'"
HEAD = f"WHERE {ORG}"
RESUME = (
    "resumed_by = 'x', resumed_note = 'x', resumed_at = clock_timestamp(), ramp_seconds = {ramp}"
)
ASK = "cancel_requested_at = clock_timestamp()"

CHECKS = (
    *(
        check(
            "summary_is_short_and_printable",
            claim("pending"),
            leave("pending", "retry", "defer", f"{NO_LEASE}, summary = {value}"),
            what=what,
        )
        for what, value in (
            ("too long", "repeat('a', 201)"),
            ("two lines", "E'a\\nb'"),
            ("another alphabet", "'\u00e9'"),
        )
    ),
    *(
        check(
            "ramps_are_never_negative",
            change("pauses", RESUME.format(ramp=ramp), PAUSE),
            what=what,
        )
        for what, ramp in (
            ("negative", "-1"),
            ("no number", "'NaN'"),
            ("endless", "'Infinity'"),
        )
    ),
    *(
        check(
            "resumed_whole_or_not_at_all",
            change("pauses", RESUME.format(ramp=0).replace(there, gone), PAUSE),
            what=f"without {there.split(' ')[0]}",
        )
        for there, gone in (
            ("resumed_by = 'x'", "resumed_by = NULL"),
            ("resumed_note = 'x'", "resumed_note = NULL"),
            ("resumed_at = clock_timestamp()", "resumed_at = NULL"),
            ("ramp_seconds = 0", "ramp_seconds = NULL"),
        )
    ),
    *(
        check(
            "a_pause_of_all_orgs_names_a_provider_or_operation",
            copy("pauses", PAUSE, pause_id="$new", org_id="*", **scope),
            what=what,
        )
        for what, scope in (
            ("everything everywhere", {"provider": None, "definition": None}),
            ("an account of one org", {"binding_id": "$new"}),
        )
    ),
    check(
        "token_hashes_are_sha256",
        copy("operators", OPERATOR, operator_id="$new", name="x", token_hash="\\x00"),
    ),
    *(
        check(
            "roles_are_known",
            copy(
                "operators",
                OPERATOR,
                operator_id="$new",
                name="x",
                token_hash="\\x" + "01" * 32,
                roles=roles,
            ),
            what=what,
        )
        for what, roles in (("made up", ["root"]), ("none", []), ("null", [None]))
    ),
    check(
        "some_org",
        copy(
            "operators",
            OPERATOR,
            operator_id="$new",
            name="x",
            token_hash="\\x" + "01" * 32,
            orgs=[],
        ),
    ),
)

UNIQUES = (
    unique(
        "one_replay_per_item",
        copy("work_items", item("pending"), work_id="$new", family="a", replays_work_id="$dead"),
        copy("work_items", item("pending"), work_id="$other", family="b", replays_work_id="$dead"),
    ),
    unique("one_pause_in_force_per_scope", copy("pauses", PAUSE, pause_id="$new")),
    unique("one_operator_per_token", copy("operators", OPERATOR, operator_id="$new", name="x")),
    unique(
        "one_operator_per_token",
        copy("operators", REVOKED, operator_id="$new", name="x", revoked_at=None),
        what="not even after it was revoked",
    ),
    unique(
        "one_live_operator_per_name",
        copy("operators", OPERATOR, operator_id="$new", token_hash="\\x" + "01" * 32),
    ),
)

ITEMS = (
    *(
        said("work_items.a_lifecycle", "OF003", what, *sql)
        for what, sql in (
            ("cancellation asked of nobody", (change("work_items", ASK, item("pending")),)),
            (
                "cancellation asked twice",
                (
                    change("work_items", ASK, item("held")),
                    change("work_items", f"{ASK} + interval '1 s'", item("held")),
                ),
            ),
            (
                "cancellation taken back",
                (
                    change("work_items", ASK, item("held")),
                    change("work_items", "cancel_requested_at = NULL", item("held")),
                ),
            ),
        )
    ),
    *(
        said(
            "work_items.a_birth",
            "OF002",
            f"born with {column}",
            copy("work_items", item("pending"), **{"work_id": "$new", column: value}),
        )
        for column, value in {"cancel_requested_at": "2030-01-01", "left_by": "$new"}.items()
    ),
    *(
        said("work_items.c_terms", "OF007", what, *sql)
        for what, sql in (
            *(
                (
                    f"another {column}",
                    (leave("pending", "cancelled", "cancel", f"{column} = {value}"),),
                )
                for column, value in {
                    "definition": "'x'",
                    "view_revision": "99",
                    "provider": "'x'",
                    "binding_id": "NULL",
                }.items()
            ),
            ("claimed as left by another", (claim("pending", f"{CLAIM}, left_by = '$new'"),)),
            (
                "left by another",
                (leave("held", "retry", "defer", f"{NO_LEASE}, left_by = '$new'"),),
            ),
            ("cancellation asked by a claim", (claim("pending", f"{CLAIM}, {ASK}"),)),
            (
                "cancellation forgotten by a move",
                (
                    change("work_items", ASK, item("held")),
                    leave("held", "retry", "defer", f"{NO_LEASE}, cancel_requested_at = NULL"),
                ),
            ),
        )
    ),
    said(
        "work_items.c_terms",
        "OF009",
        "deferred to before it was due",
        leave("held", "retry", "defer", f"{NO_LEASE}, run_after = run_after - interval '1 ms'"),
    ),
)

OPERATIONS = (
    *(
        said("pauses.a_pause", "OF016", what, *sql)
        for what, sql in (
            *(
                (f"another {column}", (change("pauses", f"{column} = {value}", PAUSE),))
                for column, value in {
                    "org_id": "'x'",
                    "pause_id": "'$new'",
                    "provider": "'x'",
                    "definition": "'x'",
                    "binding_id": "'$new'",
                    "paused_by": "'x'",
                    "paused_note": "'x'",
                    "paused_at": "clock_timestamp()",
                }.items()
            ),
            ("ended twice", (change("pauses", RESUME.format(ramp=1), ENDED),)),
            ("another ramp", (change("pauses", "ramp_seconds = 99", ENDED),)),
            (
                "in force again",
                (
                    change(
                        "pauses",
                        "resumed_by = NULL, resumed_note = NULL, resumed_at = NULL,"
                        " ramp_seconds = NULL",
                        ENDED,
                    ),
                ),
            ),
        )
    ),
    said("pauses.a_birth", "OF016", "born ended", copy("pauses", ENDED, pause_id="$new")),
    *(
        said("operators.a_operator", "OF017", what, change("operators", written, which))
        for what, written, which in (
            ("another id", "operator_id = '$new'", OPERATOR),
            ("another name", "name = 'x'", OPERATOR),
            ("another token", "token_hash = sha256('x')", OPERATOR),
            ("more roles", "roles = '{administrator}'", OPERATOR),
            ("more orgs", "orgs = '{*}'", OPERATOR),
            ("made earlier", "made_at = made_at - interval '1 s'", OPERATOR),
            ("live again", "revoked_at = NULL", REVOKED),
            ("revoked twice", "revoked_at = clock_timestamp()", REVOKED),
        )
    ),
    *(
        said(
            "pressure_revisions.a_revision",
            "OF018",
            what,
            change("pressure_revisions", written, READING),
        )
        for what, written in (
            ("goes back", "revision = revision - 1"),
            ("stands still", "is_dropped = NOT is_dropped"),
            ("another view", "revision = revision + 1, view_name = 'x'"),
        )
    ),
    *(
        said("audit_heads.a_head", "OF019", what, change("audit_heads", written, HEAD))
        for what, written in (
            ("goes back", "sequence = sequence - 1"),
            ("stands still", "digest = ''"),
            ("skips a link", "sequence = sequence + 2"),
            ("another org", "sequence = sequence + 1, org_id = 'x'"),
        )
    ),
    *(
        said(
            "audit_heads.a_birth",
            "OF019",
            what,
            f"INSERT INTO oncefence.audit_heads (org_id, sequence, digest) VALUES ('x', {head})",
        )
        for what, head in (("begins late", "1, ''"), ("begins after something", "0, '\\x00'"))
    ),
)

CASES = (*CHECKS, *UNIQUES, *ITEMS, *OPERATIONS)

KEPT = ("audit_heads", "operators", "pauses", "pressure_revisions", "work_pressure")
