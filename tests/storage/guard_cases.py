"""
What the database must refuse, rule by rule: each case breaks exactly one rule.

The last statement of a case is the one that is refused; those before it prepare for it in the
same transaction.
"""

from tests.storage import guard_cases_breakers as breakers
from tests.storage import guard_cases_connections as connections
from tests.storage import guard_cases_creates as creates
from tests.storage import guard_cases_grants as grants
from tests.storage import guard_cases_keys as keys
from tests.storage import guard_cases_operations as operations
from tests.storage import guard_cases_quota as quota
from tests.storage import guard_cases_revisions as revisions
from tests.storage.guard_statements import (
    LIVE,
    NO_GRANT,
    ORG,
    PREPARED,
    attempt,
    change,
    check,
    claim,
    copy,
    execution,
    expire,
    item,
    leave,
    look_again,
    look_at,
    move,
    not_found,
    open_attempt,
    said,
    settle,
    settle_all,
    unique,
)
from tests.storage.lifecycle_rows import ALSO, CLAIM, NO_LEASE

CHECKS = (
    check(
        "one_deployment_row",
        "INSERT INTO oncefence.deployment (singleton, is_development) VALUES (false, true)",
        app_code=NO_GRANT,
    ),
    check(
        "public_keys_are_ed25519",
        copy(
            "runtime_work_bindings",
            f"WHERE {ORG}",
            work_binding_id="$new",
            capability="other",
            credential_hash="\\x00",
            public_key="\\x00",
        ),
    ),
    check(
        "revisions_count_from_one",
        copy("binding_views", f"WHERE {ORG}", view_id="$new", revision=0),
    ),
    check(
        "binding_kind_is_known",
        copy("principal_bindings", f"WHERE {ORG}", binding_id="$new", name="x", kind="x"),
    ),
    check(
        "generation_state_is_known",
        copy("binding_generations", f"WHERE {ORG}", generation_id="$new", ordinal=2, state="x"),
    ),
    check("token_versions_count_from_one", copy("token_versions", f"WHERE {ORG}", version=0)),
    check(
        "link_versions_count_from_one",
        copy("remote_links", f"WHERE {ORG}", link_id="$new", subject="x", remote_id="1", version=0),
    ),
    check(
        "link_state_is_known",
        copy("remote_links", f"WHERE {ORG}", link_id="$new", subject="x", remote_id="1", state="x"),
    ),
    check(
        "deadline_is_positive",
        copy("commands", f"WHERE {ORG}", command_id="$new", handoff_key="x", deadline_ms=0),
    ),
    check(
        "handoff_key_is_short_ascii",
        copy("handoffs", "WHERE handoff_key = '$rejected_key'", handoff_key="$prefix.\u00e9"),
        what="another alphabet",
    ),
    check(
        "handoff_key_is_short_ascii",
        copy("handoffs", "WHERE handoff_key = '$rejected_key'", handoff_key="$prefix." + "a" * 512),
        what="too long",
    ),
    check(
        "scope_is_the_keys_own",
        copy("handoffs", "WHERE handoff_key = '$rejected_key'", handoff_key="$other_prefix.a"),
        what="org",
    ),
    *(
        check(
            "scope_is_the_keys_own",
            copy(
                "handoffs",
                "WHERE handoff_key = '$rejected_key'",
                **{"handoff_key": "$prefix.a", part: "other"},
            ),
            what=part,
        )
        for part in ("installation", "capability", "work_binding_digest")
    ),
    *(
        check(
            "accepted_has_command_rejected_has_none",
            copy(
                "handoffs",
                f"WHERE handoff_key = '{key}'",
                **{"handoff_key": "$prefix.a", **changes},
            ),
            what=what,
        )
        for what, key, changes in (
            ("a third kind", "$rejected_key", {"admission": "MADE_UP"}),
            ("accepted without command", "$accepted_key", {"command_id": None}),
            ("rejected without reason", "$rejected_key", {"reason": None}),
            ("rejected with command", "$rejected_key", {"command_id": "$pending_command"}),
        )
    ),
    check(
        "conflict_field_is_known",
        copy("handoff_conflicts", f"WHERE {ORG}", conflict_id="$new", field="x"),
    ),
    check(
        "conflict_verb_is_known",
        copy("handoff_conflicts", f"WHERE {ORG}", conflict_id="$new", verb="x"),
    ),
    *(
        check(
            "attempts_never_negative",
            copy(
                "executions",
                execution("pending_execution"),
                execution_id="$new",
                **{column: -1},
            ),
            what=column,
            app_code="OF002",
            behind=("executions.a_birth",),
        )
        for column in ("attempt", "settlements")
    ),
    *(
        check(
            "lanes_have_sequences",
            copy("work_items", item("pending"), work_id="$new", **{column: None}),
            what=column,
        )
        for column in ("source_lane", "source_sequence", "target_lane", "target_sequence")
    ),
    *(
        check("counters_never_negative", claim("pending", f"{CLAIM}, {column} = -1"), what=column)
        for column in ("attempt", "claims_lost")
    ),
    check(
        "attempts_count_from_one",
        claim("pending"),
        open_attempt("pending", ordinal=0),
    ),
    check(
        "settled_as_is_known",
        expire("running"),
        settle("open", "'OUTCOME_UNKNOWN'", "true", settled_as="'x'"),
    ),
    check("outcome_is_known", settle("open", "'MADE_UP'")),
    check("disposition_is_known", change("effect_attempts", "disposition = 'x'", attempt("lost"))),
    *(
        check("settled_means_outcome", settle("open", **{column: "NULL"}), what=f"no {column}")
        for column in ("outcome", "may_have_applied")
    ),
    check("unknown_may_have_applied", settle("open", "'OUTCOME_UNKNOWN'", "false")),
    check(
        "only_doubt_is_disposed",
        change("effect_attempts", "disposition = 'person'", attempt("retried")),
        what="not in doubt",
    ),
    check(
        "only_doubt_is_disposed",
        change("effect_attempts", "disposition = 'person'", attempt("open")),
        what="still open",
    ),
    check(
        "only_replays_are_superseded",
        change("effect_attempts", "superseded_by = '$open'", attempt("lost")),
    ),
    check(
        "unstarted_is_never_in_doubt",
        claim("pending"),
        open_attempt("pending", **PREPARED),
        settle_all("pending", "'REPLAY_SAFE_RETRY'", "true"),
    ),
    check(
        "evidence_kind_is_known",
        copy("attempt_evidence", f"WHERE {ORG}", evidence_id="$new", kind="x"),
    ),
    check(
        "lookups_count_from_one", copy("lookups", f"WHERE {ORG}", lookup_id="$new", **{"try": 0})
    ),
    check("sealed_kind_is_known", copy("sealed_payloads", f"WHERE {ORG}", kind="x")),
)

UNIQUES = (
    unique(
        "one_work_binding_per_scope",
        copy(
            "runtime_work_bindings", f"WHERE {ORG}", work_binding_id="$new", credential_hash="\\x00"
        ),
    ),
    unique(
        "one_work_binding_per_credential",
        copy("runtime_work_bindings", f"WHERE {ORG}", work_binding_id="$new", capability="other"),
    ),
    unique("one_view_per_revision", copy("binding_views", f"WHERE {ORG}", view_id="$new")),
    unique("one_binding_per_name", copy("principal_bindings", f"WHERE {ORG}", binding_id="$new")),
    unique(
        "one_generation_per_ordinal",
        copy("binding_generations", f"WHERE {ORG}", generation_id="$new", state="retired"),
    ),
    unique(
        "one_current_generation_per_binding",
        copy("binding_generations", f"WHERE {ORG}", generation_id="$new", ordinal=2),
    ),
    unique(
        "one_live_link_per_subject",
        copy("remote_links", f"WHERE {ORG}", link_id="$new", remote_id="1"),
    ),
    unique(
        "one_live_link_per_remote_record",
        copy("remote_links", f"WHERE {ORG}", link_id="$new", subject="x"),
    ),
    unique("one_command_per_handoff_key", copy("commands", f"WHERE {ORG}", command_id="$new")),
    unique(
        "one_admission_per_command",
        copy("handoffs", "WHERE handoff_key = '$accepted_key'", handoff_key="$prefix.a"),
    ),
    unique(
        "one_execution_per_command",
        copy("executions", execution("pending_execution"), execution_id="$new"),
    ),
    unique(
        "one_active_work_item_per_command",
        copy("work_items", item("pending"), work_id="$new"),
        what="beside one that waits",
    ),
    unique(
        "one_active_work_item_per_command",
        leave(
            "pending", "awaiting_legacy_outcome", "rollback_fence", ALSO["awaiting_legacy_outcome"]
        ),
        copy("work_items", item("pending"), work_id="$new", state="pending", via="create"),
        what="beside one that waits for the old owner",
    ),
    unique("one_processing_per_target_lane", claim("pending"), claim("behind")),
    unique(
        "one_item_per_lease_token",
        claim(
            "pending",
            "lease_owner = gen_random_uuid(), ownership_epoch = ownership_epoch + 1,"
            f" {LIVE}, lease_token = (SELECT lease_token FROM oncefence.work_items"
            f" {item('running')})",
        ),
    ),
    unique("one_attempt_per_ordinal", claim("waiting"), open_attempt("waiting", ordinal=1)),
    unique(
        "one_attempt_per_lease_token",
        settle("open"),
        change("work_items", LIVE, item("running")),
        open_attempt("running", ordinal=2, lease_token="w.lease_token"),
        what="in one epoch",
    ),
    unique(
        "one_attempt_per_lease_token",
        claim("pending"),
        open_attempt("pending"),
        settle_all("pending"),
        leave("pending", "retry", "defer"),
        claim(
            "pending",
            f"{LIVE}, lease_owner = '$new', ownership_epoch = ownership_epoch + 1,"
            " lease_token = (SELECT a.lease_token FROM oncefence.effect_attempts AS a"
            f" WHERE a.{ORG} AND a.work_id = '$pending')",
        ),
        open_attempt("pending", ordinal=2),
        what="in a later epoch",
    ),
    unique(
        "one_unsettled", *look_again("running"), open_attempt("new", 9), what="over an open one"
    ),
    unique("one_unsettled", *look_again("dead"), open_attempt("new", 9), what="over a lost one"),
    unique(
        "one_unsettled", *look_again("succeeded"), open_attempt("new", 9), what="over an accepted"
    ),
    unique(
        "one_unsettled",
        not_found("lost"),
        change("effect_attempts", "disposition = 'not_found'", attempt("lost")),
        *look_again("dead"),
        open_attempt("new", 9),
        what="over one that was not found",
    ),
    unique("lane_held", claim("behind_doubt"), open_attempt("behind_doubt"), what="by a doubt"),
    unique("one_lookup_per_try", copy("lookups", f"WHERE {ORG}", lookup_id="$new")),
    unique("one_completion_per_settlement", copy("completions", f"WHERE {ORG}", completion_id="x")),
)

ITEM_BIRTH = {
    "state": "retry",
    "via": "claim",
    "attempt": 1,
    "claims_lost": 1,
    "ownership_epoch": 1,
    "lease_token": "$new",
    "lease_owner": "$new",
    "lease_until": "2030-01-01",
    "outcome": "ACCEPTED",
    "failure_class": "x",
}
ITEM_IDENTITY = {
    "org_id": "'x'",
    "work_id": "'$new'",
    "family": "'x'",
    "subject_kind": "'x'",
    "subject_id": "'x'",
    "command_id": "'$new'",
    "execution_id": "'$new'",
    "attempt_id": "'$new'",
    "installation": "'x'",
    "view_id": "'$new'",
    "view_digest": "'x'",
    "payload_schema_version": "2",
    "engine_capability": "99",
    "queue_class": "'x'",
    "deadline_ms": "1",
    "source_lane": "'x'",
    "source_sequence": "99",
    "target_lane": "'x'",
    "target_sequence": "99",
    "replays_work_id": "'$new'",
    "made_at": "clock_timestamp()",
}
SAME_TOKEN = f"{LIVE}, ownership_epoch = ownership_epoch + 1"
FENCED = "rollback_fence_id = '$new'"
RECEIPT = "legacy_receipt_version = 1, legacy_receipt_digest = 'ab'"

ITEMS = (
    said(
        "work_items.a_lifecycle",
        "OF001",
        "a move that is not listed",
        leave("pending", "succeeded", "finish"),
    ),
    said(
        "work_items.a_lifecycle",
        "OF003",
        "a change without a move",
        change("work_items", "summary = 'x'", item("pending")),
    ),
    said(
        "work_items.a_lifecycle",
        "OF006",
        "a terminal row",
        change("work_items", "run_after = clock_timestamp()", item("succeeded")),
    ),
    *(
        said(
            "work_items.a_birth",
            "OF002",
            f"born with {column}",
            copy("work_items", item("pending"), **{"work_id": "$new", column: value}),
        )
        for column, value in ITEM_BIRTH.items()
    ),
    *(
        said(
            "work_items.b_claim",
            "OF007",
            f"another {column}",
            leave("pending", "cancelled", "cancel", f"{column} = {value}"),
        )
        for column, value in ITEM_IDENTITY.items()
    ),
    *(
        said("work_items.b_claim", "OF004", what, *sql)
        for what, sql in (
            (
                "skips an epoch",
                (claim("pending", f"{CLAIM.replace('epoch + 1', 'epoch + 2')}"),),
            ),
            ("keeps the epoch", (claim("waiting", CLAIM.replace("epoch + 1", "epoch")),)),
            ("keeps the token", (expire("held"), claim("held", SAME_TOKEN, "reclaim"))),
            ("reclaims a live lease", (claim("held", CLAIM, "reclaim"),)),
            (
                "reclaims over an open attempt",
                (expire("running"), claim("running", CLAIM, "reclaim")),
            ),
            (
                "moves the epoch without a claim",
                (leave("pending", "cancelled", "cancel", "ownership_epoch = 1"),),
            ),
            (
                "loses an attempt under a live lease",
                (leave("running", "dead", "attempt_lost", f"{NO_LEASE}, failure_class = 'x'"),),
            ),
        )
    ),
    *(
        said("work_items.b_claim", "OF005", what, sql)
        for what, sql in (
            (
                "claimed by nobody",
                claim("pending", CLAIM.replace("lease_owner = gen_random_uuid()", "attempt = 1")),
            ),
            (
                "claimed for ever",
                claim("pending", "lease_owner = '$new', lease_token = '$new', ownership_epoch = 1"),
            ),
            ("leaves with its lease", leave("held", "retry", "defer", "attempt = 1")),
            ("dies without a class", leave("held", "dead", "give_up")),
            (
                "is fenced without a fence",
                leave("pending", "awaiting_legacy_outcome", "rollback_fence", "attempt = 0"),
            ),
            (
                "loses its fence",
                leave(
                    "fenced",
                    "legacy_outcome_unknown",
                    "legacy_ambiguous",
                    "rollback_fence_id = NULL",
                ),
            ),
            (
                "ends elsewhere without a version",
                leave(
                    "fenced",
                    "reconciled_legacy_terminal",
                    "legacy_receipt",
                    "legacy_receipt_digest = 'ab'",
                ),
            ),
            (
                "ends elsewhere without a digest",
                leave(
                    "fenced",
                    "reconciled_legacy_terminal",
                    "legacy_receipt",
                    "legacy_receipt_version = 1",
                ),
            ),
            ("is renewed unclaimed", change("work_items", LIVE, item("pending"))),
        )
    ),
)


EXECUTIONS = (
    said(
        "executions.a_lifecycle",
        "OF001",
        "a move that is not listed",
        move("pending_execution", "retrying", "prepare_safe_retry"),
    ),
    said(
        "executions.a_lifecycle",
        "OF003",
        "a change without a move",
        change("executions", "settled_by = 'x'", execution("pending_execution")),
    ),
    *(
        said(
            "executions.a_birth",
            "OF002",
            f"born with {column}",
            copy(
                "executions",
                execution("pending_execution"),
                **{"execution_id": "$new", column: value},
            ),
        )
        for column, value in {
            "status": "running",
            "via": "begin_delivery",
            "attempt": 1,
            "settlements": 1,
            "failure_class": "x",
        }.items()
    ),
    *(
        said(
            "executions.b_counters",
            "OF007",
            f"another {column}",
            move(
                "pending_execution", "running", "begin_delivery", f", attempt = 1, {column} = {v}"
            ),
        )
        for column, v in {
            "org_id": "'x'",
            "execution_id": "'$new'",
            "command_id": "'$new'",
            "accepted_at": "clock_timestamp()",
        }.items()
    ),
    *(
        said("executions.b_counters", "OF008", what, move("pending_execution", *how))
        for what, how in (
            ("begins uncounted", ("running", "begin_delivery")),
            ("counts twice", ("running", "begin_delivery", ", attempt = 2")),
            ("counts no attempt", ("unknown", "completion_overdue", ", attempt = 1")),
            ("settles uncounted", ("cancelled", "cancel_before_first_attempt")),
            ("counts no settlement", ("unknown", "completion_overdue", ", settlements = 1")),
            ("fails without a class", ("failed", "cannot_proceed", ", settlements = 1")),
        )
    ),
)

PROOF = "disposition = 'no_effect_proof', disposition_evidence_id = "
ATTEMPTS = (
    *(
        said("effect_attempts.a_birth", "OF011", f"born with {column}", claim("pending"), sql)
        for column, sql in (
            (column, open_attempt("pending", **{column: value}))
            for column, value in {
                "settled_at": "clock_timestamp()",
                "disposition": "'person'",
                "superseded_by": "'$new'",
                "settled_token": "'$new'",
                "response_status": "200",
            }.items()
        )
    ),
    *(
        said("effect_attempts.a_birth", "OF011", what, *sql)
        for what, sql in (
            ("of another token", (claim("pending"), open_attempt("pending", lease_token="'$new'"))),
            ("of another epoch", (claim("pending"), open_attempt("pending", ownership_epoch="9"))),
            (
                "of another command",
                (claim("pending"), open_attempt("pending", command_id="'$running_command'")),
            ),
            (
                "of another execution",
                (claim("pending"), open_attempt("pending", execution_id="'$running_execution'")),
            ),
            (
                "of an item that waits",
                (open_attempt("pending", lease_token="'$new'", lease_owner="'$new'"),),
            ),
        )
    ),
    *(
        said("effect_attempts.a_change", "OF013", what, *sql)
        for what, sql in (
            ("settled by another token", (settle("open", settled_token="'$new'"),)),
            ("settled by another epoch", (settle("open", settled_epoch="9"),)),
            ("settled by nobody's token", (settle("open", settled_token="NULL"),)),
            (
                "lost under a live lease",
                (settle("open", "'OUTCOME_UNKNOWN'", "true", settled_as="'lost'"),),
            ),
            ("lost and yet known", (expire("running"), settle("open", settled_as="'lost'"))),
            (
                "marked by nobody",
                (
                    claim("pending"),
                    open_attempt("pending", **PREPARED),
                    leave("pending", "retry", "defer"),
                    change("effect_attempts", "started_at = clock_timestamp()", item("pending")),
                ),
            ),
        )
    ),
    *(
        said(
            "effect_attempts.a_change",
            "OF014",
            what,
            change("effect_attempts", f"{PROOF}{proof}", attempt("lost")),
        )
        for what, proof in (
            ("proof without evidence", "NULL"),
            ("proof that is not there", "'$new'"),
            ("proof of another attempt", "'$other_unsent_evidence'"),
            ("proof that is an answer", "'$answer_evidence'"),
        )
    ),
    said(
        "effect_attempts.a_change",
        "OF014",
        "not found by nobody",
        change("effect_attempts", "disposition = 'not_found'", attempt("lost")),
    ),
)

OTHERS = (
    *(
        said(
            "attempt_evidence.a_starter",
            "OF010",
            what,
            copy("attempt_evidence", f"WHERE {ORG}", evidence_id="$new", **changes),
        )
        for what, changes in (
            ("of another token", {"start_token": "$new"}),
            ("of another attempt", {"attempt_id": "$open"}),
        )
    ),
    *(
        said("remote_links.a_link_version", "OF024", what, *sql)
        for what, sql in (
            ("same version", (change("remote_links", "remote_id = '1'", "$where_link"),)),
            (
                "skips a version",
                (change("remote_links", "version = version + 2, remote_id = '1'", "$where_link"),),
            ),
            (
                "revived",
                (
                    change(
                        "remote_links", "version = version + 1, state = 'retired'", "$where_link"
                    ),
                    change(
                        "remote_links", "version = version + 1, state = 'active'", "$where_link"
                    ),
                ),
            ),
            *(
                (
                    f"another {column}",
                    (
                        change(
                            "remote_links", f"version = version + 1, {column} = {v}", "$where_link"
                        ),
                    ),
                )
                for column, v in {
                    "org_id": "'x'",
                    "link_id": "'$new'",
                    "binding_id": "'$new'",
                    "local_object": "'x'",
                    "subject": "'x'",
                }.items()
            ),
        )
    ),
    *(
        said("binding_generations.a_generation", "OF025", what, *sql)
        for what, sql in (
            *(
                (
                    f"another {column}",
                    (change("binding_generations", f"{column} = {value}", f"WHERE {ORG}"),),
                )
                for column, value in {
                    "org_id": "'x'",
                    "generation_id": "'$new'",
                    "binding_id": "'$new'",
                    "ordinal": "9",
                }.items()
            ),
            (
                "comes back",
                (
                    change("binding_generations", "state = 'retired'", f"WHERE {ORG}"),
                    change("binding_generations", "state = 'current'", f"WHERE {ORG}"),
                ),
            ),
            (
                "loses a token",
                (change("binding_generations", "token_version = 0", f"WHERE {ORG}"),),
            ),
        )
    ),
    *(
        said(
            "execution_keys.a_key_erasure",
            "OF023",
            what,
            *(
                change("execution_keys", one, execution("pending_execution"))
                for one in what_is_written
            ),
        )
        for what, what_is_written in (
            ("another key", ("wrapped_key = '\\x00'",)),
            ("another key id", ("key_id = 'x'",)),
            ("erased under another id", ("wrapped_key = NULL, key_id = 'x'",)),
            ("written again", ("wrapped_key = NULL", "wrapped_key = '\\x00'")),
        )
    ),
    *(
        said(
            "staged_payloads.a_staging",
            "OF027",
            what,
            change("staged_payloads", written, f"WHERE {ORG}"),
        )
        for what, written in (
            ("another key", "wrapped_key = '\\x00'"),
            ("another key id", "key_id = 'x'"),
            ("other bytes", "ciphertext = '\\x00'"),
            ("another address", "payload_address = '\\x00'"),
            ("another org", "org_id = 'x'"),
            ("kept for less", "staged_at = staged_at - interval '1 s'"),
        )
    ),
    *(
        said(
            "completions.a_delivery",
            "OF026",
            what,
            *(change("completions", one, f"WHERE {ORG}") for one in what_is_written),
        )
        for what, what_is_written in (
            ("another status", ("status = 'x'",)),
            ("another contract", ("contract = '{}'",)),
            (
                "delivered twice",
                (
                    "delivered_at = clock_timestamp()",
                    "delivered_at = clock_timestamp() + interval '1 s'",
                ),
            ),
        )
    ),
    *(
        said("lanes.a_sequence", "OF028", what, change("lanes", written, "$where_lane"))
        for what, written in (
            ("goes back", "sequence = sequence - 1"),
            ("stands still", "sequence = sequence"),
            ("skips a number", "sequence = sequence + 2"),
            ("another lane", "sequence = sequence + 1, lane_key = 'x'"),
            ("another org", "sequence = sequence + 1, org_id = 'x'"),
        )
    ),
    said(
        "lanes.a_birth",
        "OF028",
        "begins with two",
        "INSERT INTO oncefence.lanes (org_id, lane_key, sequence) VALUES ('$org', 'x', 2)",
    ),
    said(
        "handoffs.b_retention",
        "OF022",
        "before its floor",
        "DELETE FROM oncefence.handoffs WHERE handoff_key = '$rejected_key'",
        app_code=NO_GRANT,
    ),
)

COUPLING = (
    said(
        "executions.z_couple",
        "OF030",
        "runs with nothing open",
        move("pending_execution", "running", "begin_delivery", ", attempt = 1"),
        at_commit=True,
        says="execution",
    ),
    said(
        "executions.z_couple",
        "OF030",
        "ends over an open attempt",
        move(
            "running_execution",
            "failed",
            "attempt_failed",
            ", settlements = 1, failure_class = 'x'",
        ),
        at_commit=True,
        says="execution",
    ),
    said(
        "executions.z_couple",
        "OF032",
        "is unknown and nobody looks",
        move("pending_execution", "unknown", "completion_overdue"),
        at_commit=True,
        says="execution",
    ),
    said(
        "effect_attempts.z_couple",
        "OF030",
        "opens without its execution",
        claim("pending"),
        open_attempt("pending"),
        at_commit=True,
        says="execution",
    ),
    said(
        "effect_attempts.z_couple",
        "OF030",
        "settles while its execution goes on running",
        settle("open"),
        at_commit=True,
        says="execution",
    ),
    said(
        "effect_attempts.z_couple",
        "OF032",
        "settles while its execution is unknown and nobody looks",
        settle("open"),
        move("running_execution", "unknown", "certainty_lost"),
        at_commit=True,
        behind=("executions.z_couple",),
        says="execution",
    ),
    said(
        "effect_attempts.z_couple",
        "OF030",
        "is in doubt and was never counted",
        claim("pending"),
        open_attempt("pending"),
        settle_all("pending", "'REPLAY_SAFE_RETRY'", "true"),
        at_commit=True,
        says="attempt",
    ),
    said(
        "effect_attempts.z_couple",
        "OF031",
        "opens while nobody holds its item",
        claim("pending"),
        open_attempt("pending"),
        move("pending_execution", "running", "begin_delivery", ", attempt = 1"),
        leave("pending", "retry", "defer"),
        at_commit=True,
        behind=("work_items.z_couple",),
        says="attempt",
    ),
    said(
        "work_items.z_couple",
        "OF031",
        "leaves its open attempt",
        leave("running", "retry", "defer"),
        at_commit=True,
        says="work item",
    ),
    said(
        "work_items.z_couple",
        "OF032",
        "stops looking while it is unknown",
        claim("looking"),
        leave("looking", "succeeded", "finish"),
        at_commit=True,
        says="execution",
    ),
    said(
        "work_items.z_couple",
        "OF032",
        "looks while nothing is unknown",
        look_at("pending"),
        at_commit=True,
        says="execution",
    ),
    said(
        "work_items.z_couple",
        "OF030",
        "looks while an execution runs with nothing open",
        look_at("pending"),
        move("pending_execution", "running", "begin_delivery", ", attempt = 1"),
        at_commit=True,
        behind=("executions.z_couple",),
        says="execution",
    ),
    said(
        "executions.z_couple",
        "OF032",
        "is known and somebody looks",
        move("lost_execution", "needs_attention", "investigation_exhausted"),
        at_commit=True,
        says="execution",
    ),
    said(
        "commands.z_couple",
        "OF033",
        "was accepted by nobody",
        copy("commands", f"WHERE {ORG}", command_id="$new", handoff_key="x"),
        at_commit=True,
        says="command",
    ),
)

CASES = (
    *CHECKS,
    *UNIQUES,
    *ITEMS,
    *EXECUTIONS,
    *ATTEMPTS,
    *OTHERS,
    *COUPLING,
    *breakers.CASES,
    *connections.CASES,
    *creates.CASES,
    *grants.CASES,
    *keys.CASES,
    *operations.CASES,
    *quota.CASES,
    *revisions.CASES,
)

# Tables whose rows never change, and tables whose rows never go.
APPEND_ONLY = (
    "attempt_evidence",
    "audit",
    "binding_views",
    "commands",
    "contradictions",
    "handoff_conflicts",
    "handoffs",
    "lifecycle_transitions",
    "lookups",
    "principal_bindings",
    "runtime_work_bindings",
    "sealed_payloads",
    "settlement_rules",
    "token_versions",
    *revisions.APPEND_ONLY,
)
KEPT = (
    "attempt_evidence",
    "audit",
    "binding_generations",
    "binding_views",
    "commands",
    "completions",
    "contradictions",
    "deployment",
    "effect_attempts",
    "execution_keys",
    "executions",
    "handoff_conflicts",
    "lanes",
    "lifecycle_transitions",
    "lookups",
    "org_keys",
    "principal_bindings",
    "remote_links",
    "runtime_work_bindings",
    "sealed_payloads",
    "settlement_rules",
    "staged_payloads",
    "token_versions",
    "work_items",
    "work_nudges",
    *breakers.KEPT,
    *connections.KEPT,
    *grants.KEPT,
    *operations.KEPT,
    *revisions.APPEND_ONLY,
)
NEVER_TRUNCATED = sorted([*KEPT, "handoffs"])
