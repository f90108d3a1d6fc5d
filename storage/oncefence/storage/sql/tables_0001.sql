-- Every table of the first slice. Names of constraints read as the rule that they hold.

CREATE TABLE deployment (
    singleton boolean PRIMARY KEY DEFAULT true CONSTRAINT one_deployment_row CHECK (singleton),
    is_development boolean NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE lifecycle_transitions (
    lifecycle text NOT NULL,
    source text NOT NULL,
    target text NOT NULL,
    trigger text NOT NULL,
    guard text NOT NULL,
    actor text NOT NULL,
    PRIMARY KEY (lifecycle, source, target, trigger)
);

CREATE TABLE settlement_rules (
    outcome text NOT NULL,
    at_ceiling boolean NOT NULL,
    may_have_applied boolean NOT NULL,
    replay_open boolean NOT NULL,
    item_state text NOT NULL,
    item_trigger text NOT NULL,
    execution_status text NOT NULL,
    execution_trigger text NOT NULL,
    failure_class text,
    lookup_due text NOT NULL,
    PRIMARY KEY (outcome, at_ceiling, may_have_applied, replay_open)
);

CREATE TABLE org_keys (
    org_id text PRIMARY KEY,
    wrapped_key bytea NOT NULL,
    key_id text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE runtime_work_bindings (
    org_id text NOT NULL,
    work_binding_id uuid NOT NULL,
    installation text NOT NULL,
    capability text NOT NULL,
    work_binding_digest text NOT NULL,
    credential_hash bytea NOT NULL,
    -- Ed25519, raw. Without one the Runtime has no way in over Temporal.
    public_key bytea CONSTRAINT public_keys_are_ed25519 CHECK (octet_length(public_key) = 32),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, work_binding_id),
    CONSTRAINT one_work_binding_per_scope
        UNIQUE (org_id, installation, capability, work_binding_digest),
    CONSTRAINT one_work_binding_per_credential UNIQUE (credential_hash)
);

CREATE TABLE binding_views (
    org_id text NOT NULL,
    view_id uuid NOT NULL,
    installation text NOT NULL,
    name text NOT NULL,
    revision integer NOT NULL CONSTRAINT revisions_count_from_one CHECK (revision >= 1),
    digest text NOT NULL,
    operations text[] NOT NULL,
    -- The local object of each operation, in the same order.
    local_objects text[] NOT NULL,
    principal_binding text NOT NULL,
    -- text and not jsonb: the digest is of these exact characters
    content text NOT NULL,
    published_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, view_id),
    CONSTRAINT one_view_per_revision UNIQUE (org_id, installation, name, revision)
);

CREATE TABLE principal_bindings (
    org_id text NOT NULL,
    binding_id uuid NOT NULL,
    name text NOT NULL,
    provider text NOT NULL,
    kind text NOT NULL CONSTRAINT binding_kind_is_known CHECK (kind IN ('shared', 'per_user')),
    base_url text NOT NULL,
    is_local boolean NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, binding_id),
    CONSTRAINT one_binding_per_name UNIQUE (org_id, name)
);

CREATE TABLE binding_generations (
    org_id text NOT NULL,
    generation_id uuid NOT NULL,
    binding_id uuid NOT NULL,
    ordinal integer NOT NULL,
    state text NOT NULL CONSTRAINT generation_state_is_known CHECK (state IN ('current', 'retired')),
    wrapped_key bytea,
    key_id text NOT NULL,
    token_version integer NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, generation_id),
    FOREIGN KEY (org_id, binding_id) REFERENCES principal_bindings,
    CONSTRAINT one_generation_per_ordinal UNIQUE (org_id, binding_id, ordinal)
);
CREATE UNIQUE INDEX one_current_generation_per_binding
    ON binding_generations (org_id, binding_id) WHERE state = 'current';

CREATE TABLE token_versions (
    org_id text NOT NULL,
    generation_id uuid NOT NULL,
    version integer NOT NULL CONSTRAINT token_versions_count_from_one CHECK (version >= 1),
    ciphertext bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, generation_id, version),
    FOREIGN KEY (org_id, generation_id) REFERENCES binding_generations
);

CREATE TABLE remote_links (
    org_id text NOT NULL,
    link_id uuid NOT NULL,
    binding_id uuid NOT NULL,
    local_object text NOT NULL,
    subject text NOT NULL,
    remote_object text NOT NULL,
    remote_id text NOT NULL,
    version integer NOT NULL DEFAULT 1 CONSTRAINT link_versions_count_from_one CHECK (version >= 1),
    state text NOT NULL CONSTRAINT link_state_is_known
        CHECK (state IN ('active', 'suspended', 'retired')),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, link_id),
    FOREIGN KEY (org_id, binding_id) REFERENCES principal_bindings
);
CREATE UNIQUE INDEX one_live_link_per_subject
    ON remote_links (org_id, binding_id, local_object, subject) WHERE state <> 'retired';
CREATE UNIQUE INDEX one_live_link_per_remote_record
    ON remote_links (org_id, binding_id, remote_object, remote_id) WHERE state <> 'retired';

CREATE TABLE lanes (
    org_id text NOT NULL,
    lane_key text NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (org_id, lane_key)
);

CREATE TABLE commands (
    org_id text NOT NULL,
    command_id uuid NOT NULL,
    handoff_key text NOT NULL,
    outbox_id text NOT NULL,
    operation text NOT NULL,
    subject text NOT NULL,
    provider text NOT NULL,
    endpoint_class text NOT NULL,
    view_id uuid NOT NULL,
    view_digest text NOT NULL,
    binding_id uuid NOT NULL,
    generation_id uuid NOT NULL,
    link_id uuid NOT NULL,
    link_version integer NOT NULL,
    remote_id text NOT NULL,
    payload_address bytea NOT NULL,
    request_method text NOT NULL,
    request_target text NOT NULL,
    request_headers jsonb NOT NULL,
    request_body_address bytea NOT NULL,
    idempotency_key text,
    replay_window_seconds integer,
    deadline_ms integer NOT NULL CONSTRAINT deadline_is_positive CHECK (deadline_ms > 0),
    lookup_deadline_ms integer,
    is_sensitive boolean NOT NULL,
    completion_contract jsonb NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, command_id),
    FOREIGN KEY (org_id, view_id) REFERENCES binding_views,
    FOREIGN KEY (org_id, binding_id) REFERENCES principal_bindings,
    FOREIGN KEY (org_id, generation_id) REFERENCES binding_generations,
    FOREIGN KEY (org_id, link_id) REFERENCES remote_links,
    CONSTRAINT one_command_per_handoff_key UNIQUE (org_id, handoff_key)
);

CREATE TABLE handoffs (
    -- The key alone: two tenants can never race for two rows of one name.
    handoff_key text PRIMARY KEY
        CONSTRAINT handoff_key_is_short_ascii
        CHECK (octet_length(handoff_key) <= 512 AND handoff_key ~ '^[!-~]+$'),
    org_id text NOT NULL,
    installation text NOT NULL,
    capability text NOT NULL,
    work_binding_digest text NOT NULL,
    admission text NOT NULL,
    outbox_id text NOT NULL,
    payload_address bytea NOT NULL,
    command_id uuid,
    receipt_version integer NOT NULL DEFAULT 1,
    reason text,
    admitted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retained_until timestamptz NOT NULL,
    FOREIGN KEY (org_id, command_id) REFERENCES commands,
    CONSTRAINT scope_is_the_keys_own CHECK (
        starts_with(handoff_key, 'ehk1.' || org_id || '.' || installation || '.' || capability
                                 || '.' || work_binding_digest || '.')),
    CONSTRAINT accepted_has_command_rejected_has_none CHECK (
        (admission = 'COMMAND_ACCEPTED' AND command_id IS NOT NULL AND reason IS NULL)
        OR (admission = 'HANDOFF_REJECTED' AND command_id IS NULL AND reason IS NOT NULL))
);
CREATE UNIQUE INDEX one_admission_per_command ON handoffs (org_id, command_id);
-- So that what refers to an admission refers to one of its own org.
CREATE UNIQUE INDEX admissions_by_org ON handoffs (org_id, handoff_key);

CREATE TABLE handoff_conflicts (
    org_id text NOT NULL,
    conflict_id uuid NOT NULL,
    handoff_key text NOT NULL,
    field text NOT NULL CONSTRAINT conflict_field_is_known
        CHECK (field IN ('payload digest', 'outbox id')),
    verb text NOT NULL CONSTRAINT conflict_verb_is_known CHECK (verb IN ('accept', 'reject')),
    offered_outbox_id text NOT NULL,
    offered_payload_address bytea NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, conflict_id),
    FOREIGN KEY (org_id, handoff_key) REFERENCES handoffs (org_id, handoff_key)
);

CREATE TABLE executions (
    org_id text NOT NULL,
    execution_id uuid NOT NULL,
    command_id uuid NOT NULL,
    status text NOT NULL,
    via text NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    settlements integer NOT NULL DEFAULT 0,
    failure_class text,
    settled_by text,
    provider_reference jsonb,
    evidence_grade text,
    accepted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, execution_id),
    FOREIGN KEY (org_id, command_id) REFERENCES commands,
    CONSTRAINT one_execution_per_command UNIQUE (org_id, command_id),
    CONSTRAINT attempts_never_negative CHECK (attempt >= 0 AND settlements >= 0)
);
CREATE INDEX executions_unsettled ON executions (org_id, status, changed_at)
    WHERE status NOT IN ('succeeded', 'failed', 'cancelled');

CREATE TABLE work_items (
    org_id text NOT NULL,
    work_id uuid NOT NULL,
    family text NOT NULL,
    subject_kind text NOT NULL,
    subject_id text NOT NULL,
    command_id uuid,
    execution_id uuid,
    -- The attempt of unknown outcome that a lookup item investigates.
    attempt_id uuid,
    installation text NOT NULL,
    view_id uuid NOT NULL,
    view_digest text NOT NULL,
    payload_schema_version integer NOT NULL DEFAULT 1,
    engine_capability integer NOT NULL DEFAULT 1,
    queue_class text NOT NULL,
    deadline_ms integer NOT NULL,
    source_lane text,
    source_sequence bigint,
    target_lane text,
    target_sequence bigint,
    replays_work_id uuid,
    state text NOT NULL,
    via text NOT NULL,
    run_after timestamptz NOT NULL,
    attempt integer NOT NULL DEFAULT 0,
    claims_lost integer NOT NULL DEFAULT 0,
    lease_owner uuid,
    lease_token uuid,
    lease_until timestamptz,
    ownership_epoch bigint NOT NULL DEFAULT 0,
    rollback_fence_id uuid,
    legacy_receipt_version integer,
    legacy_receipt_digest text,
    outcome text,
    failure_class text,
    summary text,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, work_id),
    FOREIGN KEY (org_id, command_id) REFERENCES commands,
    FOREIGN KEY (org_id, execution_id) REFERENCES executions,
    FOREIGN KEY (org_id, view_id) REFERENCES binding_views,
    CONSTRAINT lanes_have_sequences CHECK (
        (source_lane IS NULL) = (source_sequence IS NULL)
        AND (target_lane IS NULL) = (target_sequence IS NULL)),
    CONSTRAINT counters_never_negative CHECK (attempt >= 0 AND claims_lost >= 0)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX one_active_work_item_per_command ON work_items (org_id, command_id, family)
    WHERE state IN ('pending', 'processing', 'retry',
                    'awaiting_legacy_outcome', 'legacy_outcome_unknown');
CREATE UNIQUE INDEX one_processing_per_target_lane ON work_items (org_id, target_lane)
    WHERE state = 'processing';
CREATE UNIQUE INDEX one_item_per_lease_token ON work_items (org_id, lease_token)
    WHERE lease_token IS NOT NULL;
CREATE INDEX source_lane_waiting ON work_items (org_id, source_lane, source_sequence)
    WHERE state IN ('pending', 'processing', 'retry');
CREATE INDEX target_lane_waiting ON work_items (org_id, target_lane, target_sequence)
    WHERE state IN ('pending', 'processing', 'retry');
-- run_after is left out on purpose: keeping it unindexed keeps its updates HOT, and the
-- sweep reads few enough live rows to sort them.
CREATE INDEX work_items_live ON work_items (org_id, family)
    WHERE state IN ('pending', 'processing', 'retry');

-- How often the sweep nudged an item at its present due time and epoch: a hint that spaces the
-- next nudge, never a fact about the item.
CREATE TABLE work_nudges (
    org_id text NOT NULL,
    work_id uuid NOT NULL,
    run_after timestamptz NOT NULL,
    ownership_epoch bigint NOT NULL,
    nudges integer NOT NULL,
    next_nudge_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, work_id),
    FOREIGN KEY (org_id, work_id) REFERENCES work_items
);

CREATE TABLE effect_attempts (
    org_id text NOT NULL,
    attempt_id uuid NOT NULL,
    command_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    work_id uuid NOT NULL,
    ordinal integer NOT NULL CONSTRAINT attempts_count_from_one CHECK (ordinal >= 1),
    source_lane text,
    target_lane text,
    method text NOT NULL,
    relative_target text NOT NULL,
    safe_headers jsonb NOT NULL,
    body_address bytea NOT NULL,
    idempotency_key text,
    lease_token uuid NOT NULL,
    ownership_epoch bigint NOT NULL,
    lease_owner uuid NOT NULL,
    generation_id uuid NOT NULL,
    token_version integer NOT NULL,
    link_id uuid NOT NULL,
    link_version integer NOT NULL,
    -- What was checked under lock before the mark, and what capacity was taken for it.
    validation jsonb NOT NULL,
    quota jsonb NOT NULL,
    prepared_at timestamptz NOT NULL,
    started_at timestamptz,
    started_as_of timestamptz,
    deadline_ms integer NOT NULL,
    settled_at timestamptz,
    settled_as text CONSTRAINT settled_as_is_known CHECK (settled_as IN ('starter', 'lost')),
    settled_token uuid,
    settled_epoch bigint,
    outcome text CONSTRAINT outcome_is_known CHECK (outcome IN (
        'ACCEPTED', 'REJECTED', 'RETRYABLE_PRE_DISPATCH', 'REPLAY_SAFE_RETRY', 'OUTCOME_UNKNOWN')),
    may_have_applied boolean,
    failure_class text,
    response_status integer,
    provider_receipt jsonb,
    phases jsonb,
    superseded_by uuid,
    disposition text CONSTRAINT disposition_is_known CHECK (disposition IN (
        'applied', 'refused', 'not_found', 'no_effect_proof', 'person')),
    disposition_evidence_id uuid,
    disposed_at timestamptz,
    PRIMARY KEY (org_id, attempt_id),
    FOREIGN KEY (org_id, command_id) REFERENCES commands,
    FOREIGN KEY (org_id, execution_id) REFERENCES executions,
    FOREIGN KEY (org_id, work_id) REFERENCES work_items,
    FOREIGN KEY (org_id, generation_id) REFERENCES binding_generations,
    FOREIGN KEY (org_id, link_id) REFERENCES remote_links,
    CONSTRAINT one_attempt_per_ordinal UNIQUE (org_id, command_id, ordinal),
    CONSTRAINT one_attempt_per_epoch UNIQUE (org_id, work_id, ownership_epoch),
    CONSTRAINT one_attempt_per_lease_token UNIQUE (org_id, lease_token),
    CONSTRAINT starters_by_attempt UNIQUE (org_id, attempt_id, lease_token),
    FOREIGN KEY (org_id, superseded_by) REFERENCES effect_attempts (org_id, attempt_id)
        DEFERRABLE INITIALLY DEFERRED,
    CONSTRAINT settled_means_outcome CHECK (
        (settled_at IS NULL) = (outcome IS NULL)
        AND (outcome IS NULL) = (may_have_applied IS NULL)
        AND (outcome IS NULL) = (settled_as IS NULL)),
    CONSTRAINT unknown_may_have_applied CHECK (outcome <> 'OUTCOME_UNKNOWN' OR may_have_applied),
    -- IS TRUE: of an open attempt it is null, and a null would pass.
    CONSTRAINT only_doubt_is_disposed CHECK (disposition IS NULL OR may_have_applied IS TRUE),
    CONSTRAINT only_replays_are_superseded CHECK (
        superseded_by IS NULL OR outcome IS NOT DISTINCT FROM 'REPLAY_SAFE_RETRY'),
    CONSTRAINT unstarted_is_never_in_doubt CHECK (
        started_at IS NOT NULL OR may_have_applied IS NOT TRUE)
) WITH (fillfactor = 70);
-- No second attempt over one that is open, was accepted, or may have applied without proof
-- of the contrary; a replay-safe one lets the next supersede it.
CREATE UNIQUE INDEX one_unsettled ON effect_attempts (org_id, command_id)
    WHERE outcome IS NULL OR outcome = 'ACCEPTED'
       OR (outcome = 'OUTCOME_UNKNOWN' AND disposition IS DISTINCT FROM 'no_effect_proof')
       OR (may_have_applied AND disposition <> 'no_effect_proof' AND superseded_by IS NULL);
CREATE UNIQUE INDEX lane_held ON effect_attempts (org_id, target_lane)
    WHERE outcome IS NULL
       OR (may_have_applied AND disposition IS NULL AND superseded_by IS NULL);
-- What `start_attempt` asks: a doubt holds both lanes until it is disposed, even where a
-- replay-safe successor of the same command has taken over.
CREATE INDEX source_lane_in_doubt ON effect_attempts (org_id, source_lane)
    WHERE outcome IS NULL OR (may_have_applied AND disposition IS NULL);
CREATE INDEX target_lane_in_doubt ON effect_attempts (org_id, target_lane)
    WHERE outcome IS NULL OR (may_have_applied AND disposition IS NULL);

CREATE TABLE attempt_evidence (
    org_id text NOT NULL,
    evidence_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    kind text NOT NULL CONSTRAINT evidence_kind_is_known CHECK (kind IN ('answer', 'unsent')),
    start_token uuid NOT NULL,
    outcome text,
    may_have_applied boolean NOT NULL,
    response_status integer,
    provider_receipt jsonb,
    phases jsonb,
    execution_status text NOT NULL,
    verdict text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, evidence_id),
    -- Only the holder of the token that started the attempt can speak about it.
    FOREIGN KEY (org_id, attempt_id, start_token)
        REFERENCES effect_attempts (org_id, attempt_id, lease_token)
);
CREATE INDEX evidence_of_attempt ON attempt_evidence (org_id, attempt_id);

CREATE TABLE contradictions (
    org_id text NOT NULL,
    evidence_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    execution_status text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, evidence_id),
    FOREIGN KEY (org_id, evidence_id) REFERENCES attempt_evidence,
    FOREIGN KEY (org_id, execution_id) REFERENCES executions
);

CREATE TABLE lookups (
    org_id text NOT NULL,
    lookup_id uuid NOT NULL,
    execution_id uuid NOT NULL,
    attempt_id uuid NOT NULL,
    work_id uuid NOT NULL,
    ownership_epoch bigint NOT NULL,
    -- Null where an unreachable provider spent none of the five tries.
    try integer CONSTRAINT lookups_count_from_one CHECK (try >= 1),
    reading text NOT NULL,
    verdict text NOT NULL,
    grade text NOT NULL,
    response_status integer,
    provider_receipt jsonb,
    phases jsonb,
    looked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, lookup_id),
    FOREIGN KEY (org_id, execution_id) REFERENCES executions,
    FOREIGN KEY (org_id, attempt_id) REFERENCES effect_attempts,
    FOREIGN KEY (org_id, work_id) REFERENCES work_items,
    CONSTRAINT one_lookup_per_try UNIQUE (org_id, work_id, try)
);

CREATE TABLE staged_payloads (
    org_id text NOT NULL,
    payload_address bytea NOT NULL,
    wrapped_key bytea,
    key_id text NOT NULL,
    ciphertext bytea NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, payload_address)
);

CREATE TABLE execution_keys (
    org_id text NOT NULL,
    execution_id uuid NOT NULL,
    wrapped_key bytea,
    key_id text NOT NULL,
    PRIMARY KEY (org_id, execution_id),
    FOREIGN KEY (org_id, execution_id) REFERENCES executions
);

CREATE TABLE sealed_payloads (
    org_id text NOT NULL,
    execution_id uuid NOT NULL,
    kind text NOT NULL,
    ordinal integer NOT NULL,
    ciphertext bytea NOT NULL,
    sealed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, execution_id, kind, ordinal),
    FOREIGN KEY (org_id, execution_id) REFERENCES execution_keys,
    CONSTRAINT sealed_kind_is_known CHECK (kind IN ('payload', 'request', 'answer'))
);

CREATE TABLE completions (
    org_id text NOT NULL,
    completion_id text NOT NULL,
    execution_id uuid NOT NULL,
    settlement integer NOT NULL,
    status text NOT NULL,
    supersedes text,
    contract jsonb NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    delivered_at timestamptz,
    PRIMARY KEY (org_id, completion_id),
    FOREIGN KEY (org_id, execution_id) REFERENCES executions,
    CONSTRAINT one_completion_per_settlement UNIQUE (org_id, execution_id, settlement)
);

CREATE TABLE audit (
    org_id text NOT NULL,
    audit_id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    act text NOT NULL,
    subject_kind text NOT NULL,
    subject_id text NOT NULL,
    note text,
    PRIMARY KEY (org_id, audit_id)
);
