"""
What the database must refuse of grants, renewals and token versions: that a renewal is begun by
nobody's claim, is settled by others while it lives, or brings a version that nothing called for.
"""

from tests.storage.guard_statements import UNIQUE, Case, change, check, copy, said

RENEWED = "WHERE org_id = '$renewed_org' AND generation_id = '$renewed_generation'"
STALE = "WHERE org_id = '$stale_org' AND generation_id = '$stale_generation'"
OPEN = "WHERE org_id = '$renewed_org' AND refresh_id = '$open_refresh'"
SETTLED = "WHERE org_id = '$renewed_org' AND refresh_id = '$settled_refresh'"
LOST = "WHERE org_id = '$lost_org' AND refresh_id = '$lost_refresh'"
STATIC = "WHERE org_id = '$static_org' AND refresh_id = '$static_refresh'"
OWN = "settled_at = clock_timestamp(), settled_token = lease_token"
OTHERS = "settled_at = clock_timestamp(), settled_token = NULL"


def grant(what: str, where: str = STALE) -> str:
    """A change of a grant."""
    return change("authorization_grants", what, where)


def begin(**changes: str) -> str:
    """A renewal by the claim of the stale item, with the columns of `changes` as expressions."""
    columns = {
        "org_id": "w.org_id",
        "refresh_id": "gen_random_uuid()",
        "generation_id": "g.generation_id",
        "from_version": "g.token_version",
        "rotation": "'rotating'",
        "because": "'expired'",
        "work_id": "w.work_id",
        "lease_token": "w.lease_token",
        "ownership_epoch": "w.ownership_epoch",
        "lease_owner": "w.lease_owner",
        "lease_until": "w.lease_until",
        **changes,
    }
    return (
        f"INSERT INTO oncefence.token_refreshes ({', '.join(columns)})"
        f" SELECT {', '.join(columns.values())} FROM oncefence.work_items AS w"
        " JOIN oncefence.binding_generations AS g"
        "   ON g.org_id = w.org_id AND g.generation_id = '$stale_generation'"
        " WHERE w.org_id = '$stale_org' AND w.work_id = '$stale_item'"
    )


GRANTS = (
    *(
        said("authorization_grants.a_grant", "OF060", what, *sql)
        for what, sql in (
            ("another rotation", (grant("rotation = 'static'"),)),
            ("another generation", (grant("generation_id = '$new'"),)),
            ("back from its end", (grant("state = 'revoked'"), grant("state = 'healthy'"))),
            (
                "healthy by nobody's word",
                (grant("state = 'needs_reauthorization'"), grant("state = 'healthy'")),
            ),
            (
                "from refused to unknown",
                (grant("state = 'needs_reauthorization'"), grant("state = 'refresh_unknown'")),
            ),
            (
                "from refused to misconfigured",
                (grant("state = 'needs_reauthorization'"), grant("state = 'misconfigured'")),
            ),
        )
    ),
    *(
        said(
            "authorization_grants.a_birth",
            "OF060",
            f"begins with {column}",
            copy("authorization_grants", STALE, **{column: value}),
        )
        for column, value in (
            ("state", "misconfigured"),
            ("open_refresh", "$open_refresh"),
            ("failures", 1),
            ("suspect_version", 1),
            ("not_before", "2026-01-01T00:00:00Z"),
        )
    ),
    said(
        "authorization_grants.a_grant",
        "OF061",
        "forgets the renewal that is out",
        grant("open_refresh = NULL", RENEWED),
    ),
    said(
        "authorization_grants.a_grant",
        "OF061",
        "names another's renewal",
        grant("open_refresh = '$open_refresh'"),
    ),
    said(
        "authorization_grants.a_grant",
        "OF061",
        "names one that has ended",
        grant("open_refresh = '$new'", "WHERE org_id = '$lost_org'"),
    ),
    check("grant_rotation_is_known", copy("authorization_grants", STALE, rotation="x")),
    check("grant_state_is_known", grant("state = 'x'")),
)

BIRTHS = (
    *(
        said("token_refreshes.a_birth", "OF062", what, begin(**changes))
        for what, changes in (
            ("by another token", {"lease_token": "gen_random_uuid()"}),
            ("of another epoch", {"ownership_epoch": "w.ownership_epoch + 1"}),
            ("of another version", {"from_version": "g.token_version + 1"}),
            ("of another rotation", {"rotation": "'static'"}),
            (
                "for another generation",
                {
                    "generation_id": "(SELECT o.generation_id FROM oncefence.binding_generations"
                    " AS o WHERE o.org_id = w.org_id AND o.state = 'retired')"
                },
            ),
            ("settled", {"settled_at": "clock_timestamp()", "outcome": "'unknown'"}),
            ("with an answer", {"response_status": "200"}),
        )
    ),
    said(
        "token_refreshes.a_birth",
        "OF062",
        "past its lease",
        change(
            "work_items",
            "lease_until = clock_timestamp() - interval '1 s'",
            "WHERE org_id = '$stale_org' AND work_id = '$stale_item'",
        ),
        begin(),
    ),
    said(
        "token_refreshes.a_birth",
        "OF062",
        "of a grant that is parked",
        grant("state = 'refresh_unknown'"),
        begin(),
    ),
    check("refresh_reason_is_known", begin(because="'x'")),
    Case(
        guard="one_spending_per_rotating_version",
        what="",
        code=UNIQUE,
        sql=(copy("token_refreshes", OPEN, refresh_id="$new"),),
    ),
    Case(
        guard="one_spending_per_rotating_version",
        what="after a lost answer",
        code=UNIQUE,
        sql=(copy("token_refreshes", LOST, refresh_id="$new"),),
        app_code="OF062",
        behind=("token_refreshes.a_birth",),
    ),
    Case(
        guard="one_open_refresh_per_generation",
        what="",
        code=UNIQUE,
        sql=(copy("token_refreshes", STATIC, refresh_id="$new"),),
    ),
)


def settle(what: str, where: str = OPEN) -> str:
    """A change of a renewal."""
    return change("token_refreshes", what, where)


SETTLEMENTS = (
    *(
        said("token_refreshes.a_settlement", "OF063", what, settle(written, where))
        for what, written, where in (
            ("another version", f"from_version = 1, {OWN}, outcome = 'unsent'", OPEN),
            ("another claim", f"ownership_epoch = 99, {OWN}, outcome = 'unsent'", OPEN),
            ("nothing of its end", "phases = '{}'", OPEN),
            ("opened again", "settled_at = NULL, outcome = NULL, to_version = NULL", SETTLED),
            ("settled twice", f"{OWN}, outcome = 'answered', to_version = NULL", SETTLED),
            ("unknown and then superseded", f"{OWN}, outcome = 'superseded'", LOST),
            ("lost while its lease lasts", f"{OTHERS}, outcome = 'unknown'", OPEN),
            ("superseded while its lease lasts", f"{OTHERS}, outcome = 'superseded'", OPEN),
            (
                "told by another claim",
                (
                    "settled_at = clock_timestamp(), settled_token = gen_random_uuid(),"
                    " outcome = 'answered'"
                ),
                OPEN,
            ),
        )
    ),
    said(
        "token_refreshes.a_settlement",
        "OF063",
        "others tell more than that it is lost",
        settle(f"{OTHERS}, outcome = 'unsent'", LOST),
    ),
    check("refresh_outcome_is_known", settle(f"{OWN}, outcome = 'x'")),
    check("settled_refresh_has_outcome", settle(OWN)),
    check("activated_has_version", settle(f"{OWN}, outcome = 'activated'")),
)

STALE_TOKEN = f"{STALE} AND version = 1"
TOKENS = (
    said(
        "token_versions.a_birth",
        "OF064",
        "a first one by a renewal",
        copy("token_versions", STALE_TOKEN, made_because="expired"),
    ),
    said(
        "token_versions.a_birth",
        "OF064",
        "leaves a gap",
        copy("token_versions", STALE_TOKEN, version=3, made_because="reauthorized"),
    ),
    said(
        "token_versions.a_birth",
        "OF064",
        "of no renewal",
        copy("token_versions", STALE_TOKEN, version=2, made_because="expired"),
    ),
    said(
        "token_versions.a_birth",
        "OF064",
        "of a renewal for another reason",
        begin(),
        copy("token_versions", STALE_TOKEN, version=2, made_because="suspect"),
    ),
    said(
        "binding_generations.c_token",
        "OF064",
        "goes on to none",
        change("binding_generations", "token_version = token_version + 1", STALE),
    ),
    said(
        "binding_generations.c_token",
        "OF064",
        "leaves one out",
        copy("token_versions", STALE_TOKEN, version=2, made_because="reauthorized"),
        change("binding_generations", "token_version = token_version + 2", STALE),
    ),
    Case(
        guard="token_reason_is_known",
        what="",
        code="23514",
        sql=(copy("token_versions", STALE_TOKEN, version=2, made_because="x"),),
        app_code="OF064",
        behind=("token_versions.a_birth",),
    ),
)

CASES = (*GRANTS, *BIRTHS, *SETTLEMENTS, *TOKENS)

KEPT = ("authorization_grants", "token_refreshes")
