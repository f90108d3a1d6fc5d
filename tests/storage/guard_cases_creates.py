"""What the database must refuse of creates and of repeats under a key, rule by rule."""

from tests.storage.guard_statements import (
    ORG,
    change,
    check,
    claim,
    copy,
    look_again,
    open_attempt,
    said,
    unique,
)

_PENDING = f"WHERE {ORG} AND command_id = '$pending_command'"
_CREATING = "WHERE org_id = '$creates_org' AND command_id = '$creating_command'"
_NEXT = "version = version + 1"


def _of_creates(*statements: str) -> tuple[str, ...]:
    """The statements about the org whose creates are under way."""
    return tuple(statement.replace("$org", "$creates_org") for statement in statements)


_CHECKS = (
    check(
        "a_link_has_its_record",
        change("remote_links", f"{_NEXT}, state = 'active'", "$where_slot"),
        what="active without one",
    ),
    check(
        "a_link_has_its_record",
        copy("remote_links", "$where_link", link_id="$new", subject="x", state="creating"),
        what="a slot with one",
    ),
    check(
        "only_a_create_looks_first",
        copy("commands", _PENDING, command_id="$new", handoff_key="x", looks_first=True),
    ),
    *(
        check(
            "a_key_has_its_window",
            copy("commands", _PENDING, command_id="$new", handoff_key="x", **columns),
            what=what,
        )
        for what, columns in (
            ("a key alone", {"idempotency_key": "x"}),
            ("a window alone", {"replay_window_seconds": 60}),
            ("no window", {"idempotency_key": "x", "replay_window_seconds": 0}),
        )
    ),
    unique(
        "one_command_per_create_slot",
        copy("commands", _CREATING, command_id="$new", handoff_key="x"),
    ),
)

_SLOTS = tuple(
    said(
        "remote_links.a_link_version",
        "OF029",
        what,
        change("remote_links", f"{_NEXT}, {to}", where),
    )
    for what, where, to in (
        ("a link becomes a slot", "$where_link", "state = 'creating', remote_id = NULL"),
        ("a slot is suspended", "$where_slot", "state = 'suspended', remote_id = '1'"),
        ("a slot is given back with a record", "$where_slot", "state = 'retired', remote_id = '1'"),
        ("a slot stays one with a record", "$where_slot", "remote_id = '1'"),
        (
            "a slot of another kind of record",
            "$where_slot",
            "state = 'active', remote_id = '1', remote_object = 'x'",
        ),
    )
)

_COUPLING = (
    said(
        "remote_links.z_couple_birth",
        "OF034",
        "a slot of no create",
        copy(
            "remote_links",
            "$where_link",
            link_id="$new",
            subject="x",
            state="creating",
            remote_id=None,
        ),
        at_commit=True,
        says="link",
    ),
    *(
        said(
            "remote_links.z_couple",
            "OF034",
            what,
            change("remote_links", f"{_NEXT}, {to}", "$where_slot"),
            at_commit=True,
            says="link",
        )
        for what, to in (
            ("given back while its create is open", "state = 'retired'"),
            ("filled while its create is open", "state = 'active', remote_id = '1'"),
        )
    ),
    said(
        "commands.z_couple",
        "OF035",
        "a create without a slot",
        copy("commands", _PENDING, command_id="$new", handoff_key="$prefix.new", remote_id=None),
        copy(
            "handoffs",
            "WHERE handoff_key = '$accepted_key'",
            handoff_key="$prefix.new",
            command_id="$new",
        ),
        at_commit=True,
        says="command",
    ),
)

_REPLAYS = (
    said(
        "effect_attempts.b_replay",
        "OF015",
        "over a doubt without a key",
        *look_again("unkeyed"),
        open_attempt("new", 9),
    ),
    *(
        said(
            "effect_attempts.b_replay",
            "OF015",
            what,
            *_of_creates(
                claim("repeated"),
                open_attempt(
                    "repeated", 2, idempotency_key="c.idempotency_key", started_as_of=started
                ),
            ),
        )
        for what, started in (
            ("after the window of its key", "clock_timestamp() + interval '1 day'"),
            ("as of no time", "NULL"),
        )
    ),
)

CASES = (*_CHECKS, *_SLOTS, *_COUPLING, *_REPLAYS)
