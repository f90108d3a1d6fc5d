"""What the database must refuse of connecting accounts, from the app to the revocation."""

from tests.storage.guard_statements import change, check, copy, said, unique

ORG = "org_id = '$connections_org'"
CURRENT = f"WHERE {ORG} AND binding_id = '$connected_binding'"
ENDED = f"WHERE {ORG} AND generation_id = '$ended_generation'"
APP = f"WHERE {ORG} AND app_id = '$app'"
REQUEST, USED, SETTLED = (
    f"WHERE {ORG} AND request_id = '${name}'" for name in ("request", "used", "settled")
)
REVOCATION, SETTLED_REVOCATION = (
    f"WHERE {ORG} AND revocation_id = '${name}'" for name in ("revocation", "settled_revocation")
)
USE = "used_at = clock_timestamp(), wrapped_key = NULL"
END = "settled_at = clock_timestamp(), outcome = 'denied'"
OTHER_STATE = {"request_id": "$new", "state_hash": "\\x00"}

GENERATIONS = (
    *(
        said(
            "binding_generations.b_generation_authority",
            "OF065",
            f"another {column}",
            change("binding_generations", f"{column} = {value}", CURRENT),
        )
        for column, value in {
            "flow": "'oauth2'",
            "pack_grant": "'x'",
            "issuer": "'x'",
            "account": "'x'",
            "installation": "'x'",
            "scopes": "'{x}'",
            "base_url": "'x'",
            "client_id": "'x'",
            "made_at": "made_at - interval '1 s'",
        }.items()
    ),
    *(
        said(
            "binding_generations.b_generation_authority",
            "OF065",
            what,
            *(change("binding_generations", one, where) for one in written),
        )
        for what, where, written in (
            ("ends without ending", CURRENT, ("retired_at = clock_timestamp()",)),
            ("says why without ending", CURRENT, ("retired_because = 'x'",)),
            ("ended for another reason", ENDED, ("retired_because = 'x'",)),
            ("ended at another time", ENDED, ("retired_at = clock_timestamp()",)),
            ("loses its key while it is current", CURRENT, ("wrapped_key = NULL",)),
        )
    ),
    said(
        "binding_generations.b_generation_authority",
        "OF065",
        "has its key again",
        change("binding_generations", "wrapped_key = NULL", ENDED),
        change("binding_generations", "wrapped_key = '\\x00'", ENDED),
        behind=("binding_generations.a_generation",),
        app_code="OF025",
    ),
    check(
        "generation_flow_is_known",
        copy("binding_generations", CURRENT, generation_id="$new", ordinal=2, flow="x"),
    ),
)

BINDINGS = (
    *(
        said(
            "principal_bindings.a_binding_kind",
            "OF069",
            what,
            copy(
                "principal_bindings",
                CURRENT,
                binding_id="$new",
                **changes,
            ),
        )
        for what, changes in (
            ("of another kind", {"kind": "per_user", "subject": "u-1"}),
            ("of another provider", {"provider": "somebody else"}),
        )
    ),
    check(
        "a_per_user_binding_has_its_user",
        copy("principal_bindings", CURRENT, binding_id="$new", name="x", subject="u-1"),
    ),
)

APPS = (
    *(
        said(
            "provider_apps.a_provider_app",
            "OF066",
            f"another {column}",
            change("provider_apps", f"{column} = {value}", APP),
        )
        for column, value in {
            "org_id": "'x'",
            "app_id": "'$new'",
            "provider": "'x'",
            "pack_grant": "'x'",
            "flow": "'mint'",
            "client_id": "'x'",
            "ciphertext": "'\\x00'",
            "wrapped_key": "'\\x00'",
            "key_id": "'x'",
            "made_by": "'x'",
            "note": "'x'",
            "made_at": "made_at - interval '1 s'",
        }.items()
    ),
    said(
        "provider_apps.a_provider_app",
        "OF066",
        "comes back",
        change("provider_apps", "retired_at = clock_timestamp()", APP),
        change("provider_apps", "retired_at = NULL", APP),
    ),
    check("app_flow_is_known", copy("provider_apps", APP, app_id="$new", flow="x")),
    unique("one_live_app_per_client", copy("provider_apps", APP, app_id="$new")),
)

REQUESTS = (
    *(
        said(
            "authorization_requests.a_authorization_request",
            "OF067",
            f"another {column}",
            change("authorization_requests", f"{column} = {value}", REQUEST),
        )
        for column, value in {
            "org_id": "'x'",
            "request_id": "'$new'",
            "act": "'reauthorize'",
            "binding_id": "'$new'",
            "name": "'x'",
            "provider": "'x'",
            "base_url": "'x'",
            "is_local": "false",
            "pack_grant": "'x'",
            "grant_content": "'[]'",
            "client_id": "'x'",
            "redirect_uri": "'x'",
            "state_hash": "'\\x00'",
            "verifier_ciphertext": "'\\x00'",
            "wrapped_key": "'\\x00'",
            "key_id": "'x'",
            "expected_version": "'x'",
            "made_by": "'x'",
            "note": "'x'",
            "made_at": "made_at - interval '1 s'",
            "expires_at": "expires_at + interval '1 s'",
        }.items()
    ),
    *(
        said(
            "authorization_requests.a_authorization_request",
            "OF067",
            what,
            *(change("authorization_requests", one, where) for one in written),
        )
        for what, where, written in (
            ("is used again", USED, ("used_at = clock_timestamp()",)),
            ("is unused again", USED, ("used_at = NULL",)),
            ("is settled unused", REQUEST, (END,)),
            ("is used and settled at once", REQUEST, (f"{USE}, {END}",)),
            ("is settled again", SETTLED, (END,)),
            ("came to something else", SETTLED, ("outcome = 'lost'",)),
            ("is open again", SETTLED, ("settled_at = NULL, outcome = NULL",)),
        )
    ),
    *(
        said(
            "authorization_requests.a_authorization_request_birth",
            "OF067",
            what,
            copy("authorization_requests", where, **OTHER_STATE, **changes),
        )
        for what, where, changes in (
            ("begins used", USED, {}),
            ("begins settled", SETTLED, {}),
            ("lasts for long", REQUEST, {"expires_at": "2999-01-01T00:00:00Z"}),
        )
    ),
    said(
        "authorization_requests.a_authorization_request",
        "OF067",
        "is used too late",
        copy(
            "authorization_requests",
            REQUEST,
            **OTHER_STATE,
            expires_at="2020-01-01T00:00:00Z",
        ),
        change("authorization_requests", USE, f"WHERE {ORG} AND request_id = '$new'"),
    ),
    *(
        check(guard, copy("authorization_requests", REQUEST, **{**OTHER_STATE, **changes}))
        for guard, changes in (
            ("request_act_is_known", {"act": "x"}),
            ("request_flow_is_known", {"flow": "x", "redirect_uri": None, "state_hash": None}),
            ("request_kind_is_known", {"kind": "x"}),
            ("only_a_browser_brings_a_state", {"redirect_uri": None}),
            ("a_request_of_a_user_names_it", {"subject": "u-1"}),
        )
    ),
    *(
        check(guard, change("authorization_requests", written, where))
        for guard, where, written in (
            ("a_used_request_has_no_key", REQUEST, "used_at = clock_timestamp()"),
            ("request_outcome_is_known", USED, "settled_at = clock_timestamp(), outcome = 'x'"),
            ("settled_request_has_outcome", USED, "settled_at = clock_timestamp()"),
            (
                "connected_has_generation",
                USED,
                "settled_at = clock_timestamp(), outcome = 'connected'",
            ),
        )
    ),
    unique("one_request_per_state", copy("authorization_requests", REQUEST, request_id="$new")),
)

REVOCATIONS = (
    *(
        said(
            "revocations.a_revocation",
            "OF068",
            what,
            change("revocations", written, where),
        )
        for what, where, written in (
            ("another revocation_id", REVOCATION, "revocation_id = '$new'"),
            ("of another version", REVOCATION, "token_version = 2"),
            ("another note", REVOCATION, "note = 'x'"),
            ("begun at another time", REVOCATION, "started_at = clock_timestamp()"),
            ("settled again", SETTLED_REVOCATION, "outcome = 'lost'"),
            ("open again", SETTLED_REVOCATION, "settled_at = NULL, outcome = NULL"),
        )
    ),
    said(
        "revocations.a_revocation",
        "OF068",
        "begins settled",
        copy("revocations", SETTLED_REVOCATION, revocation_id="$new"),
    ),
    said(
        "revocations.a_revocation",
        "OF068",
        "of what is current",
        f"INSERT INTO oncefence.revocations (org_id, revocation_id, generation_id, token_version,"
        f" made_by, note) SELECT org_id, '$new', generation_id, 1, 'x', 'x'"
        f" FROM oncefence.binding_generations {CURRENT}",
    ),
    check(
        "revocation_outcome_is_known",
        change("revocations", "settled_at = clock_timestamp(), outcome = 'x'", REVOCATION),
    ),
    check(
        "settled_revocation_has_outcome",
        change("revocations", "settled_at = clock_timestamp()", REVOCATION),
    ),
)

CASES = (*GENERATIONS, *BINDINGS, *APPS, *REQUESTS, *REVOCATIONS)

KEPT = ("authorization_requests", "provider_apps", "revocations")
