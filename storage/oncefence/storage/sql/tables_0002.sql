-- What the whole kernel needs beside the first slice: every field of a work item, pauses,
-- operators, the chain of the audit, and read models of pressure.

-- Rows of the first slice are filled below, by their owner, with the guards out of the way.
ALTER TABLE work_items DISABLE TRIGGER USER;
ALTER TABLE work_items
    ADD COLUMN definition text,
    ADD COLUMN view_revision integer,
    ADD COLUMN provider text,
    ADD COLUMN binding_id uuid,
    ADD COLUMN cancel_requested_at timestamptz,
    -- The claim that left the item last, so that it may ask again after a lost answer.
    ADD COLUMN left_by uuid;
UPDATE work_items AS w
   SET definition = coalesce(
           (SELECT c.operation FROM commands AS c
             WHERE c.org_id = w.org_id AND c.command_id = w.command_id), w.family),
       provider = (SELECT c.provider FROM commands AS c
                    WHERE c.org_id = w.org_id AND c.command_id = w.command_id),
       binding_id = (SELECT c.binding_id FROM commands AS c
                      WHERE c.org_id = w.org_id AND c.command_id = w.command_id),
       view_revision = (SELECT v.revision FROM binding_views AS v
                         WHERE v.org_id = w.org_id AND v.view_id = w.view_id);
ALTER TABLE work_items
    ALTER COLUMN definition SET NOT NULL,
    ALTER COLUMN view_revision SET NOT NULL,
    ALTER COLUMN engine_capability SET DEFAULT 2,
    ADD FOREIGN KEY (org_id, binding_id) REFERENCES principal_bindings,
    ADD FOREIGN KEY (org_id, replays_work_id) REFERENCES work_items (org_id, work_id),
    -- A summary is shown to operators as it is: short, printable, and never somebody's data.
    ADD CONSTRAINT summary_is_short_and_printable
        CHECK (octet_length(summary) <= 200 AND summary ~ '^[ -~]*$');
ALTER TABLE work_items ENABLE TRIGGER USER;

-- One replay of an ended item at a time; the lineage is a chain and never a tree.
CREATE UNIQUE INDEX one_replay_per_item ON work_items (org_id, replays_work_id)
    WHERE replays_work_id IS NOT NULL;
-- Where few rows are live, or few were when statistics were made, the planner takes any index of
-- live rows for as good as the primary key, or better, and keeps for long to one that reads every
-- live row of the org. So each of them is only for a statement that names what it is about: a
-- class (for all classes, `queue_class >= ''`), a lane, a command, or the end of a lease.
DROP INDEX work_items_live, source_lane_waiting, target_lane_waiting,
    one_processing_per_target_lane, one_active_work_item_per_command;
-- The admission window, in its own order.
CREATE INDEX window_waiting ON work_items (org_id, queue_class, run_after, work_id)
    WHERE queue_class IS NOT NULL AND state IN ('pending', 'processing', 'retry');
CREATE INDEX source_lane_waiting ON work_items (org_id, source_lane, source_sequence)
    WHERE source_lane IS NOT NULL AND state IN ('pending', 'processing', 'retry');
CREATE INDEX target_lane_waiting ON work_items (org_id, target_lane, target_sequence)
    WHERE target_lane IS NOT NULL AND state IN ('pending', 'processing', 'retry');
CREATE INDEX work_items_dead ON work_items (org_id, changed_at, work_id)
    WHERE state = 'dead' OR (state = 'cancelled' AND failure_class IS NOT NULL);
CREATE UNIQUE INDEX one_processing_per_target_lane ON work_items (org_id, target_lane)
    WHERE target_lane IS NOT NULL AND state = 'processing';
CREATE UNIQUE INDEX one_active_work_item_per_command ON work_items (org_id, command_id, family)
    WHERE command_id IS NOT NULL
      AND state IN ('pending', 'processing', 'retry',
                    'awaiting_legacy_outcome', 'legacy_outcome_unknown');
CREATE INDEX work_items_held ON work_items (lease_until)
    WHERE lease_until IS NOT NULL AND state = 'processing';
CREATE INDEX work_items_of_the_old_owner ON work_items (org_id)
    WHERE state IN ('awaiting_legacy_outcome', 'legacy_outcome_unknown');
-- Whether a later item of a lane has gone ahead is asked of all that ended there, by replays.
CREATE INDEX source_lane_ended ON work_items (org_id, source_lane, source_sequence)
    WHERE source_lane IS NOT NULL
      AND state IN ('succeeded', 'skipped', 'dead', 'cancelled', 'awaiting_legacy_outcome',
                    'legacy_outcome_unknown', 'reconciled_legacy_terminal');
CREATE INDEX target_lane_ended ON work_items (org_id, target_lane, target_sequence)
    WHERE target_lane IS NOT NULL
      AND state IN ('succeeded', 'skipped', 'dead', 'cancelled', 'awaiting_legacy_outcome',
                    'legacy_outcome_unknown', 'reconciled_legacy_terminal');

-- As before, but likewise each for statements that name its lane; and with an order, by which
-- `lanes_are_free` asks for them.
DROP INDEX lane_held, source_lane_in_doubt, target_lane_in_doubt;
CREATE UNIQUE INDEX lane_held ON effect_attempts (org_id, target_lane)
    WHERE target_lane IS NOT NULL
      AND (outcome IS NULL
           OR (may_have_applied AND disposition IS NULL AND superseded_by IS NULL));
CREATE INDEX source_lane_in_doubt ON effect_attempts (org_id, source_lane, ordinal)
    WHERE source_lane IS NOT NULL
      AND (outcome IS NULL OR (may_have_applied AND disposition IS NULL));
CREATE INDEX target_lane_in_doubt ON effect_attempts (org_id, target_lane, ordinal)
    WHERE target_lane IS NOT NULL
      AND (outcome IS NULL OR (may_have_applied AND disposition IS NULL));

-- What is in the open is found by an index as small as that is, and not by one of the whole
-- history. An item keeps one token for as long as it keeps an epoch, and its attempts are born
-- with both (`guard_attempt_birth`), so that one attempt per token is one per epoch, too.
ALTER TABLE effect_attempts DROP CONSTRAINT one_attempt_per_epoch;
CREATE INDEX attempts_open ON effect_attempts (org_id, command_id, work_id)
    WHERE started_at IS NOT NULL AND settled_at IS NULL;
-- An attempt refers to its item, whose command and execution are its own from its birth on
-- (`guard_attempt_birth`); they never change, and the item refers to both.
ALTER TABLE effect_attempts
    DROP CONSTRAINT effect_attempts_org_id_command_id_fkey,
    DROP CONSTRAINT effect_attempts_org_id_execution_id_fkey;
-- That evidence bears the token of its attempt is held by `guard_evidence_birth`: neither ever
-- changes, and so it needs no index of its own over all attempts.
ALTER TABLE attempt_evidence
    DROP CONSTRAINT attempt_evidence_org_id_attempt_id_start_token_fkey,
    ADD FOREIGN KEY (org_id, attempt_id) REFERENCES effect_attempts;
ALTER TABLE effect_attempts DROP CONSTRAINT starters_by_attempt;
-- Nothing that moves of an execution is in an index, so each move stays in its page. What is not
-- settled is found by its items; who asks for executions by their status reads all of them.
DROP INDEX executions_unsettled;
ALTER TABLE executions SET (fillfactor = 70);

CREATE TABLE pauses (
    -- '*' is every org.
    org_id text NOT NULL,
    pause_id uuid NOT NULL,
    provider text,
    definition text,
    binding_id uuid,
    paused_by text NOT NULL,
    paused_note text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    resumed_by text,
    resumed_note text,
    resumed_at timestamptz,
    -- After the resume, over this time the number of claims at once grows from one to all.
    ramp_seconds double precision
        -- Nor endless: NaN and infinity are no time that could be added to another.
        CONSTRAINT ramps_are_never_negative CHECK (ramp_seconds BETWEEN 0 AND 31536000),
    PRIMARY KEY (org_id, pause_id),
    CONSTRAINT resumed_whole_or_not_at_all CHECK (
        num_nonnulls(resumed_by, resumed_note, resumed_at, ramp_seconds) IN (0, 4)),
    CONSTRAINT a_pause_of_all_orgs_names_a_provider_or_operation CHECK (
        org_id <> '*' OR (num_nonnulls(provider, definition) > 0 AND binding_id IS NULL))
);
CREATE UNIQUE INDEX one_pause_in_force_per_scope ON pauses
    (org_id, coalesce(provider, ''), coalesce(definition, ''), coalesce(binding_id::text, ''))
    WHERE resumed_at IS NULL;

CREATE TABLE operators (
    operator_id uuid PRIMARY KEY,
    name text NOT NULL,
    token_hash bytea NOT NULL CONSTRAINT token_hashes_are_sha256 CHECK (octet_length(token_hash) = 32),
    roles text[] NOT NULL CONSTRAINT roles_are_known CHECK (
        roles <@ ARRAY['viewer', 'operator', 'repairer', 'administrator']
        AND cardinality(roles) > 0),
    -- {*} is every org.
    orgs text[] NOT NULL CONSTRAINT some_org CHECK (cardinality(orgs) > 0),
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz,
    CONSTRAINT one_operator_per_token UNIQUE (token_hash)
);
CREATE UNIQUE INDEX one_live_operator_per_name ON operators (name) WHERE revoked_at IS NULL;

-- The end of each org's chain of audit rows; locked by whoever adds the next one.
CREATE TABLE audit_heads (
    org_id text PRIMARY KEY,
    sequence bigint NOT NULL,
    digest bytea NOT NULL
);
ALTER TABLE audit DISABLE TRIGGER USER;
ALTER TABLE audit
    ADD COLUMN expected_version text,
    ADD COLUMN sequence bigint,
    ADD COLUMN previous bytea,
    ADD COLUMN digest bytea;

-- Depth and age of what waits, by org, family, provider and state. Rows of another revision
-- than the newest are of an earlier reading and count for nothing.
CREATE TABLE pressure_revisions (
    view_name text PRIMARY KEY,
    revision bigint NOT NULL,
    -- The snapshot of the source that the rows of this revision were read from.
    source_snapshot text NOT NULL,
    source_time timestamptz NOT NULL,
    is_dropped boolean NOT NULL
);
CREATE TABLE work_pressure (
    org_id text NOT NULL,
    family text NOT NULL,
    provider text NOT NULL,
    state text NOT NULL,
    revision bigint NOT NULL,
    depth bigint NOT NULL,
    due bigint NOT NULL,
    oldest_due_at timestamptz,
    oldest_made_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, family, provider, state)
);
