"""
What the database must refuse of breakers: moves that are none, and acts that are nobody's.

Each case breaks exactly one rule (see `guard_cases`). The first statement of most of them makes
the breaker that the last one is about.
"""

from tests.storage.guard_statements import NO_GRANT, change, check, said

KEY = "provider:nobody:writes"
THIS = f"WHERE org_id = '*' AND key = '{KEY}'"
COLUMNS = "org_id, key, provider, endpoint_class, binding_id, state, via"
ADD = (
    f"INSERT INTO oncefence.breakers ({COLUMNS})"
    f" VALUES ('*', '{KEY}', 'nobody', 'writes', NULL, 'closed', 'create')"
)
TIMES = "opened_at = clock_timestamp(), until = clock_timestamp(), counts_from = clock_timestamp()"
NEXT = "version = version + 1"
PERSON = "changed_by = 'ann', changed_note = 'a note'"


def moved(state: str, via: str, also: str = TIMES) -> str:
    return change("breakers", f"state = '{state}', via = '{via}', {also}", THIS)


def born(**changes: str) -> str:
    values = {
        "org_id": "'*'",
        "key": f"'{KEY}'",
        "provider": "'nobody'",
        "endpoint_class": "'writes'",
        "binding_id": "NULL",
        "state": "'closed'",
        "via": "'create'",
        **changes,
    }
    columns, row = ", ".join(values), ", ".join(values.values())
    return f"INSERT INTO oncefence.breakers ({columns}) VALUES ({row})"


CASES = (
    *(
        said("breakers.a_lifecycle", "OF080", what, ADD, moved(state, via, also))
        for what, state, via, also in (
            ("closed to half-open", "half_open", "probe", f"{TIMES}, {NEXT}"),
            ("closed to ramp", "ramp", "recover", f"{TIMES}, {NEXT}"),
            ("by another move", "open", "relapse", f"{TIMES}, {NEXT}"),
            ("without a new version", "open", "trip", TIMES),
            ("two versions on", "open", "trip", f"{TIMES}, version = version + 2"),
            ("a person's by nobody", "open", "override_open", f"{TIMES}, {NEXT}"),
            (
                "a person's without a note",
                "open",
                "override_open",
                f"{TIMES}, {NEXT}, changed_by = 'ann'",
            ),
            ("its own by a person", "open", "trip", f"{TIMES}, {NEXT}, {PERSON}"),
        )
    ),
    *(
        said(
            "breakers.a_lifecycle",
            "OF080",
            f"open to {state}",
            ADD,
            moved("open", "trip", f"{TIMES}, {NEXT}"),
            moved(state, via, NEXT),
        )
        for state, via in (("closed", "ramp_over"), ("ramp", "recover"))
    ),
    *(
        said("breakers.a_birth", "OF081", what, born(**changes))
        for what, changes in (
            ("born open", {"state": "'open'"}),
            ("born by a move", {"via": "'trip'"}),
            ("born late", {"version": "1"}),
            ("born opened", {"opens": "1"}),
            ("born with failures", {"failures": "1"}),
            ("born with an end", {"until": "clock_timestamp()"}),
            ("born by a person", {"changed_by": "'ann'"}),
        )
    ),
    *(
        said(
            "breakers.a_lifecycle",
            "OF082",
            f"another {column}",
            ADD,
            change("breakers", f"{column} = {value}", THIS),
        )
        for column, value in {
            "org_id": "'x'",
            "key": "'x'",
            "provider": "'x'",
            "endpoint_class": "'x'",
            "binding_id": "'$new'",
            "via": "'trip'",
            "version": "7",
            "changed_at": "clock_timestamp()",
            "changed_by": "'ann'",
            "changed_note": "'x'",
            "opens": "1",
            "opened_at": "clock_timestamp()",
            "until": "clock_timestamp()",
            "counts_from": "clock_timestamp()",
        }.items()
    ),
    check(
        "one_row_of_breaker_rules",
        "INSERT INTO oncefence.breaker_rules SELECT (jsonb_populate_record(r,"
        " '{\"singleton\": false}')).* FROM oncefence.breaker_rules AS r",
        app_code=NO_GRANT,
    ),
    check("a_breaker_is_called_what_it_is_of", born(key="'x'")),
    check("an_opened_breaker_has_its_times", ADD, moved("open", "trip", NEXT)),
)

KEPT = ("breakers", "breaker_orgs", "breaker_rules")
