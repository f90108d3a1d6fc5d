"""
What the database must refuse of revisions: that two of them mix, and that their lineage or the
line of their activations has a gap. Each case breaks exactly one rule (see `guard_cases`).
"""

from tests.storage.guard_statements import ORG, claim, copy, item, open_attempt, said

FIRST = f"WHERE {ORG} AND revision = 1"
AHEAD = {"view_id": "$ahead", "view_digest": "$ahead_digest"}
THIRD = {"view_id": "$new", "revision": 3, "follows_digest": "$ahead_digest"}
NEXT = {"ordinal": 2, "view_id": "$ahead", "replaces": "$view"}

ITEMS = (
    said(
        "work_items.y_view",
        "OF050",
        "of another revision than its command",
        copy("work_items", item("pending"), work_id="$new", family="x", view_revision=2, **AHEAD),
    ),
    said(
        "work_items.y_view",
        "OF057",
        "of a person's family, for an account that is nobody's own",
        copy("work_items", item("pending"), work_id="$new", family="connected.deliver"),
    ),
)

COMMANDS = tuple(
    said(
        "commands.y_view",
        "OF051",
        what,
        copy(
            "commands",
            f"WHERE {ORG} AND command_id = '$pending_command'",
            command_id="$new",
            handoff_key="x",
            **changes,
        ),
    )
    for what, changes in (
        ("of a revision that was never current", AHEAD),
        ("of an operation that its revision lacks", {"operation": "x"}),
    )
)

OTHER_LINK = (
    "(SELECT l.link_id FROM oncefence.remote_links AS l"
    " WHERE l.org_id = w.org_id AND l.link_id <> c.link_id LIMIT 1)"
)
ATTEMPTS = (
    *(
        said(
            "effect_attempts.y_pins",
            "OF052",
            f"another {column}",
            claim("pending"),
            open_attempt("pending", **{column: value}),
        )
        for column, value in {
            "method": "'POST'",
            "relative_target": "'/'",
            "safe_headers": "'[]'",
            "body_address": "c.payload_address",
            "idempotency_key": "'x'",
            "link_id": OTHER_LINK,
            "link_version": "99",
        }.items()
    ),
    said(
        "effect_attempts.y_pins",
        "OF052",
        "another generation_id",
        claim("pending"),
        copy(
            "binding_generations",
            f"WHERE {ORG}",
            generation_id="$new",
            ordinal=2,
            state="retired",
        ),
        open_attempt("pending", generation_id="'$new'"),
    ),
)

VIEWS = (
    *(
        said(
            "binding_views.y_lineage",
            "OF053",
            f"with another {column}",
            copy("binding_views", FIRST, **{**THIRD, column: value}),
        )
        for column, value in {
            "digest": "ab" * 32,
            "pack_digest": "ab" * 32,
            "binding_digest": "ab" * 32,
            "content": "{}",
        }.items()
    ),
    said(
        "binding_views.y_lineage",
        "OF053",
        "under another name",
        copy("binding_views", FIRST, view_id="$new", name="other"),
    ),
    *(
        said(
            "binding_views.y_lineage",
            "OF054",
            what,
            copy("binding_views", FIRST, **{**THIRD, **changes}),
        )
        for what, changes in (
            ("follows nothing", {"follows_digest": None}),
            ("follows an older one", {"follows_digest": "$view_digest"}),
            ("leaves a gap", {"revision": 4, "follows_digest": None}),
            ("first and yet follows", {"installation": "other", "revision": 1}),
        )
    ),
)

ACTIVATIONS = (
    *(
        said(
            "view_activations.y_order",
            "OF055",
            f"of another {column}",
            copy("view_activations", f"WHERE {ORG}", **{**NEXT, column: "other"}),
        )
        for column in ("name", "installation")
    ),
    *(
        said(
            "view_activations.y_order",
            "OF056",
            what,
            copy("view_activations", f"WHERE {ORG}", **{**NEXT, **changes}),
        )
        for what, changes in (
            ("replaces nothing", {"replaces": None}),
            ("replaces what is not current", {"replaces": "$ahead"}),
            ("leaves a gap", {"ordinal": 3, "replaces": None}),
            ("before the first", {"ordinal": 0, "replaces": None}),
            ("activates what is current", {"view_id": "$view"}),
        )
    ),
)

CASES = (*ITEMS, *COMMANDS, *ATTEMPTS, *VIEWS, *ACTIVATIONS)

APPEND_ONLY = ("view_activations",)
