-- What the database refuses on its own, whoever asks. Each rule has a SQLSTATE of class OF.
-- Trigger names begin with a letter that orders them: `a_` fires first.

-- OF001: moves of a lifecycle; OF003: same-state updates; OF006: terminal rows.
CREATE FUNCTION guard_work_item_lifecycle() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe work_items;
BEGIN
    IF NEW.state IS DISTINCT FROM OLD.state
       OR (NEW.via = 'reclaim' AND NEW.ownership_epoch IS DISTINCT FROM OLD.ownership_epoch) THEN
        PERFORM FROM lifecycle_transitions AS t
         WHERE t.lifecycle = 'work_item' AND t.source = OLD.state
           AND t.target = NEW.state AND t.trigger = NEW.via;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'work item: no move % -> % by %', OLD.state, NEW.state, NEW.via
                USING ERRCODE = 'OF001';
        END IF;
        RETURN NEW;
    END IF;
    probe := NEW;
    probe.lease_until := OLD.lease_until;
    probe.run_after := OLD.run_after;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'work item: % stays %, so only lease_until and run_after may change',
            OLD.work_id, OLD.state USING ERRCODE = 'OF003';
    END IF;
    IF OLD.state IN ('succeeded', 'skipped', 'dead', 'cancelled', 'reconciled_legacy_terminal')
       AND NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'work item: % is terminal', OLD.work_id USING ERRCODE = 'OF006';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_execution_lifecycle() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.status IS DISTINCT FROM OLD.status THEN
        PERFORM FROM lifecycle_transitions AS t
         WHERE t.lifecycle = 'execution' AND t.source = OLD.status
           AND t.target = NEW.status AND t.trigger = NEW.via;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'execution: no move % -> % by %', OLD.status, NEW.status, NEW.via
                USING ERRCODE = 'OF001';
        END IF;
    ELSIF NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'execution: % stays %, so nothing of it may change',
            OLD.execution_id, OLD.status USING ERRCODE = 'OF003';
    END IF;
    RETURN NEW;
END $$;

-- OF002: first states.
CREATE FUNCTION guard_work_item_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.state <> 'pending' OR NEW.via <> 'create' OR NEW.attempt <> 0 OR NEW.claims_lost <> 0
       OR NEW.ownership_epoch <> 0 OR NEW.lease_token IS NOT NULL OR NEW.lease_owner IS NOT NULL
       OR NEW.lease_until IS NOT NULL OR NEW.outcome IS NOT NULL
       OR NEW.failure_class IS NOT NULL THEN
        RAISE EXCEPTION 'work item: begins pending, unclaimed and without an end'
            USING ERRCODE = 'OF002';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_execution_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.status <> 'accepted' OR NEW.via <> 'create' OR NEW.attempt <> 0
       OR NEW.settlements <> 0 OR NEW.failure_class IS NOT NULL THEN
        RAISE EXCEPTION 'execution: begins accepted, without attempt or settlement'
            USING ERRCODE = 'OF002';
    END IF;
    RETURN NEW;
END $$;

-- OF004: claims; OF005: state and lease; OF007: identity columns.
CREATE FUNCTION guard_work_item_claim() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.org_id, NEW.work_id, NEW.family, NEW.subject_kind, NEW.subject_id, NEW.command_id,
        NEW.execution_id, NEW.attempt_id, NEW.installation, NEW.view_id, NEW.view_digest,
        NEW.payload_schema_version, NEW.engine_capability, NEW.queue_class, NEW.deadline_ms,
        NEW.source_lane, NEW.source_sequence, NEW.target_lane, NEW.target_sequence,
        NEW.replays_work_id, NEW.made_at)
       IS DISTINCT FROM
       (OLD.org_id, OLD.work_id, OLD.family, OLD.subject_kind, OLD.subject_id, OLD.command_id,
        OLD.execution_id, OLD.attempt_id, OLD.installation, OLD.view_id, OLD.view_digest,
        OLD.payload_schema_version, OLD.engine_capability, OLD.queue_class, OLD.deadline_ms,
        OLD.source_lane, OLD.source_sequence, OLD.target_lane, OLD.target_sequence,
        OLD.replays_work_id, OLD.made_at) THEN
        RAISE EXCEPTION 'work item: what it is never changes' USING ERRCODE = 'OF007';
    END IF;
    IF NEW.state = 'processing' AND NEW.via IN ('claim', 'reclaim')
       AND (OLD.state <> 'processing' OR NEW.ownership_epoch <> OLD.ownership_epoch) THEN
        IF NEW.ownership_epoch <> OLD.ownership_epoch + 1
           OR NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token THEN
            RAISE EXCEPTION 'work item: a claim takes the next epoch and a token of its own'
                USING ERRCODE = 'OF004';
        END IF;
        -- clock_timestamp() is read here, after the row lock: a predicate in the UPDATE's
        -- WHERE would have been judged before the wait for it.
        IF NEW.via = 'reclaim' AND (OLD.lease_until > clock_timestamp() OR EXISTS (
                SELECT FROM effect_attempts AS a
                 WHERE a.org_id = OLD.org_id AND a.work_id = OLD.work_id
                   AND a.started_at IS NOT NULL AND a.settled_at IS NULL)) THEN
            RAISE EXCEPTION 'work item: a reclaim needs an ended lease and nothing in the open'
                USING ERRCODE = 'OF004';
        END IF;
    ELSIF NEW.ownership_epoch <> OLD.ownership_epoch THEN
        RAISE EXCEPTION 'work item: only a claim moves the epoch' USING ERRCODE = 'OF004';
    END IF;
    IF NEW.via = 'attempt_lost' AND OLD.state = 'processing'
       AND OLD.lease_until > clock_timestamp() THEN
        RAISE EXCEPTION 'work item: its lease is live, so its attempt is not lost'
            USING ERRCODE = 'OF004';
    END IF;
    IF (NEW.state = 'processing') <> (NEW.lease_token IS NOT NULL)
       OR (NEW.lease_token IS NULL) <> (NEW.lease_owner IS NULL)
       OR (NEW.lease_token IS NULL) <> (NEW.lease_until IS NULL)
       OR (NEW.state = 'dead' AND NEW.failure_class IS NULL)
       OR (NEW.state IN ('awaiting_legacy_outcome', 'legacy_outcome_unknown',
                         'reconciled_legacy_terminal') AND NEW.rollback_fence_id IS NULL)
       OR (NEW.state = 'reconciled_legacy_terminal'
           AND (NEW.legacy_receipt_version IS NULL OR NEW.legacy_receipt_digest IS NULL)) THEN
        RAISE EXCEPTION 'work item: state and lease do not fit (%)', NEW.state
            USING ERRCODE = 'OF005';
    END IF;
    RETURN NEW;
END $$;

-- OF008: an execution's counters move only with the moves that they count.
CREATE FUNCTION guard_execution_counters() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.org_id, NEW.execution_id, NEW.command_id, NEW.accepted_at)
       IS DISTINCT FROM (OLD.org_id, OLD.execution_id, OLD.command_id, OLD.accepted_at) THEN
        RAISE EXCEPTION 'execution: what it is never changes' USING ERRCODE = 'OF007';
    END IF;
    IF NEW.status = OLD.status THEN
        RETURN NEW;
    END IF;
    IF NEW.attempt <> OLD.attempt + (NEW.via IN ('begin_delivery', 'begin_retry'))::integer
       OR NEW.settlements
          <> OLD.settlements + (NEW.status IN ('succeeded', 'failed', 'cancelled'))::integer
       OR (NEW.status = 'failed' AND NEW.failure_class IS NULL) THEN
        RAISE EXCEPTION 'execution: attempt and settlement numbers do not fit the move %', NEW.via
            USING ERRCODE = 'OF008';
    END IF;
    RETURN NEW;
END $$;

-- OF011: an attempt begins open; OF012: columns are written once; OF013: only the starter's
-- token and epoch settle it, or nobody holds it; OF014: a proof needs its row.
CREATE FUNCTION guard_attempt_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.settled_at IS NOT NULL OR NEW.disposition IS NOT NULL OR NEW.superseded_by IS NOT NULL
       OR NEW.settled_token IS NOT NULL OR NEW.response_status IS NOT NULL THEN
        RAISE EXCEPTION 'attempt: begins unsettled' USING ERRCODE = 'OF011';
    END IF;
    PERFORM FROM work_items AS w
      WHERE w.org_id = NEW.org_id AND w.work_id = NEW.work_id AND w.state = 'processing'
        AND w.lease_token = NEW.lease_token AND w.ownership_epoch = NEW.ownership_epoch
        AND w.command_id = NEW.command_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt: only the live claimant of its item may begin one'
            USING ERRCODE = 'OF011';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION guard_attempt_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe effect_attempts;
BEGIN
    probe := NEW;
    -- The settlement, the start of a prepared attempt, its successor and its disposition are
    -- written once; everything else was said when it began.
    IF OLD.started_at IS NULL THEN
        probe.started_at := OLD.started_at;
        probe.started_as_of := OLD.started_as_of;
    END IF;
    IF OLD.settled_at IS NULL THEN
        probe.settled_at := OLD.settled_at;
        probe.settled_as := OLD.settled_as;
        probe.settled_token := OLD.settled_token;
        probe.settled_epoch := OLD.settled_epoch;
        probe.outcome := OLD.outcome;
        probe.may_have_applied := OLD.may_have_applied;
        probe.failure_class := OLD.failure_class;
        probe.response_status := OLD.response_status;
        probe.provider_receipt := OLD.provider_receipt;
        probe.phases := OLD.phases;
    END IF;
    IF OLD.superseded_by IS NULL THEN
        probe.superseded_by := OLD.superseded_by;
    END IF;
    -- One upgrade exists: that nothing was found is later confirmed by proof.
    IF OLD.disposition IS NULL
       OR (OLD.disposition = 'not_found' AND NEW.disposition = 'no_effect_proof') THEN
        probe.disposition := OLD.disposition;
        probe.disposition_evidence_id := OLD.disposition_evidence_id;
        probe.disposed_at := OLD.disposed_at;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'attempt: % is written once', OLD.attempt_id USING ERRCODE = 'OF012';
    END IF;
    IF NEW.settled_at IS NULL AND num_nonnulls(NEW.settled_as, NEW.settled_token,
            NEW.settled_epoch, NEW.outcome, NEW.may_have_applied, NEW.failure_class,
            NEW.response_status, NEW.provider_receipt, NEW.phases) > 0 THEN
        RAISE EXCEPTION 'attempt: % is not settled yet', OLD.attempt_id USING ERRCODE = 'OF012';
    END IF;
    IF NEW.disposition IS NULL
       AND num_nonnulls(NEW.disposition_evidence_id, NEW.disposed_at) > 0 THEN
        RAISE EXCEPTION 'attempt: % is not disposed yet', OLD.attempt_id USING ERRCODE = 'OF012';
    END IF;
    IF OLD.settled_at IS NULL AND NEW.settled_at IS NOT NULL THEN
        IF NEW.settled_as = 'starter' THEN
            IF NEW.settled_token IS DISTINCT FROM OLD.lease_token
               OR NEW.settled_epoch IS DISTINCT FROM OLD.ownership_epoch THEN
                RAISE EXCEPTION 'attempt: only the claim that began % may settle it',
                    OLD.attempt_id USING ERRCODE = 'OF013';
            END IF;
        ELSIF NEW.outcome <> 'OUTCOME_UNKNOWN' OR EXISTS (
                SELECT FROM work_items AS w
                 WHERE w.org_id = OLD.org_id AND w.work_id = OLD.work_id
                   AND w.lease_token = OLD.lease_token AND w.lease_until > clock_timestamp()) THEN
            RAISE EXCEPTION 'attempt: % is not lost while its claim lives, and a lost one is unknown',
                OLD.attempt_id USING ERRCODE = 'OF013';
        END IF;
    END IF;
    IF OLD.started_at IS NULL AND NEW.started_at IS NOT NULL THEN
        PERFORM FROM work_items AS w
          WHERE w.org_id = OLD.org_id AND w.work_id = OLD.work_id AND w.state = 'processing'
            AND w.lease_token = OLD.lease_token AND w.ownership_epoch = OLD.ownership_epoch;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'attempt: only the live claimant of its item may mark %',
                OLD.attempt_id USING ERRCODE = 'OF013';
        END IF;
    END IF;
    IF NEW.disposition IS DISTINCT FROM OLD.disposition AND NEW.disposition = 'not_found' THEN
        PERFORM FROM lookups AS l
          WHERE l.org_id = NEW.org_id AND l.execution_id = NEW.execution_id
            AND l.verdict = 'not_found';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'attempt: nothing was looked for, so nothing was not found'
                USING ERRCODE = 'OF014';
        END IF;
    END IF;
    IF NEW.disposition IS DISTINCT FROM OLD.disposition
       AND NEW.disposition = 'no_effect_proof' THEN
        PERFORM FROM attempt_evidence AS e
         WHERE e.org_id = NEW.org_id AND e.evidence_id = NEW.disposition_evidence_id
           AND e.attempt_id = NEW.attempt_id AND e.kind = 'unsent';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'attempt: a proof of no effect needs its evidence row'
                USING ERRCODE = 'OF014';
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- OF020, OF021: rows that are only ever added, or never changed.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: rows are only ever added', TG_TABLE_NAME USING ERRCODE = 'OF020';
END $$;
CREATE FUNCTION refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: rows are kept', TG_TABLE_NAME USING ERRCODE = 'OF021';
END $$;
CREATE FUNCTION guard_admission_removal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.retained_until > clock_timestamp() THEN
        RAISE EXCEPTION 'handoff: an admission is kept until its retention ends'
            USING ERRCODE = 'OF022';
    END IF;
    RETURN OLD;
END $$;

-- OF023: a data key may be erased and nothing else; OF024: links; OF025: generations;
-- OF026: completions; OF027: staged payloads; OF028: lanes; OF033: commands, at COMMIT.
CREATE FUNCTION guard_key_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    probe record;
BEGIN
    probe := NEW;
    IF NEW.wrapped_key IS NULL THEN
        probe.wrapped_key := OLD.wrapped_key;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION '%: a key can be erased and nothing else', TG_TABLE_NAME
            USING ERRCODE = 'OF023';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_staging() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Erased bytes may be put again; bytes that are there stay, and only stay longer.
    IF (NEW.org_id, NEW.payload_address) IS DISTINCT FROM (OLD.org_id, OLD.payload_address)
       OR NEW.staged_at < OLD.staged_at
       OR (OLD.wrapped_key IS NOT NULL
           AND (NEW.key_id, NEW.ciphertext) IS DISTINCT FROM (OLD.key_id, OLD.ciphertext))
       OR (OLD.wrapped_key IS NOT NULL AND NEW.wrapped_key IS NOT NULL
           AND NEW.wrapped_key <> OLD.wrapped_key) THEN
        RAISE EXCEPTION 'staged payload: its key can be erased and its bytes put again, no more'
            USING ERRCODE = 'OF027';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_lane_sequence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.org_id, NEW.lane_key) IS DISTINCT FROM (OLD.org_id, OLD.lane_key)
       OR NEW.sequence <> OLD.sequence + 1 THEN
        RAISE EXCEPTION 'lane: its sequence goes on by one and never back' USING ERRCODE = 'OF028';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_lane_birth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.sequence <> 1 THEN
        RAISE EXCEPTION 'lane: begins with one' USING ERRCODE = 'OF028';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION couple_command() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM FROM handoffs AS h
      WHERE h.org_id = NEW.org_id AND h.command_id = NEW.command_id
        AND h.handoff_key = NEW.handoff_key;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'command %: nobody accepted it', NEW.command_id USING ERRCODE = 'OF033';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION guard_link_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW IS DISTINCT FROM OLD AND (NEW.version <> OLD.version + 1 OR OLD.state = 'retired'
        OR (NEW.org_id, NEW.link_id, NEW.binding_id, NEW.local_object, NEW.subject)
           IS DISTINCT FROM
           (OLD.org_id, OLD.link_id, OLD.binding_id, OLD.local_object, OLD.subject)) THEN
        RAISE EXCEPTION 'link: every change is the next version of the same live link'
            USING ERRCODE = 'OF024';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_generation_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.org_id, NEW.generation_id, NEW.binding_id, NEW.ordinal)
       IS DISTINCT FROM (OLD.org_id, OLD.generation_id, OLD.binding_id, OLD.ordinal)
       OR (OLD.state = 'retired' AND NEW.state <> 'retired')
       OR NEW.token_version < OLD.token_version THEN
        RAISE EXCEPTION 'generation: it is never another one, never comes back, never loses a token'
            USING ERRCODE = 'OF025';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_completion_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    probe record;
BEGIN
    probe := NEW;
    IF OLD.delivered_at IS NULL THEN
        probe.delivered_at := OLD.delivered_at;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'completion: only its delivery is written, once' USING ERRCODE = 'OF026';
    END IF;
    RETURN NEW;
END $$;

-- OF030 .. OF032: what must hold at COMMIT between an execution, its attempts and its items.
-- Each reads the row as it is then, not as it was when the trigger was queued.
CREATE FUNCTION check_execution_coupling(p_org text, p_execution uuid) RETURNS void
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    execution executions;
    open_attempts integer;
    is_looked_up boolean;
BEGIN
    SELECT * INTO execution FROM executions AS e
     WHERE e.org_id = p_org AND e.execution_id = p_execution;
    SELECT count(*) INTO open_attempts FROM effect_attempts AS a
     WHERE a.org_id = p_org AND a.command_id = execution.command_id
       AND a.started_at IS NOT NULL AND a.settled_at IS NULL;
    IF (execution.status = 'running') <> (open_attempts = 1) OR open_attempts > 1 THEN
        RAISE EXCEPTION 'execution %: % with % open attempts',
            execution.execution_id, execution.status, open_attempts USING ERRCODE = 'OF030';
    END IF;
    SELECT EXISTS (
        SELECT FROM work_items AS w
         WHERE w.org_id = p_org AND w.command_id = execution.command_id
           AND w.family = 'effect.lookup' AND w.state IN ('pending', 'processing', 'retry'))
      INTO is_looked_up;
    IF (execution.status = 'unknown') <> is_looked_up THEN
        RAISE EXCEPTION 'execution %: unknown and looked up go together, and it is %',
            execution.execution_id, execution.status USING ERRCODE = 'OF032';
    END IF;
END $$;
CREATE FUNCTION couple_execution() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM check_execution_coupling(NEW.org_id, NEW.execution_id);
    RETURN NULL;
END $$;
CREATE FUNCTION couple_attempt() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    attempt effect_attempts;
BEGIN
    SELECT * INTO attempt FROM effect_attempts AS a
     WHERE a.org_id = NEW.org_id AND a.attempt_id = NEW.attempt_id;
    IF attempt.started_at IS NOT NULL AND attempt.settled_at IS NULL THEN
        PERFORM FROM work_items AS w
          WHERE w.org_id = attempt.org_id AND w.work_id = attempt.work_id
            AND w.state = 'processing';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'attempt %: open, but nobody holds its item', attempt.attempt_id
                USING ERRCODE = 'OF031';
        END IF;
    END IF;
    PERFORM check_execution_coupling(NEW.org_id, NEW.execution_id);
    RETURN NULL;
END $$;
CREATE FUNCTION couple_work_item() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    item work_items;
BEGIN
    SELECT * INTO item FROM work_items AS w
     WHERE w.org_id = NEW.org_id AND w.work_id = NEW.work_id;
    IF item.state <> 'processing' AND EXISTS (
            SELECT FROM effect_attempts AS a
             WHERE a.org_id = item.org_id AND a.work_id = item.work_id
               AND a.started_at IS NOT NULL AND a.settled_at IS NULL) THEN
        RAISE EXCEPTION 'work item %: % with an open attempt', item.work_id, item.state
            USING ERRCODE = 'OF031';
    END IF;
    IF item.family = 'effect.lookup' THEN
        PERFORM check_execution_coupling(item.org_id, item.execution_id);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER a_lifecycle BEFORE UPDATE ON work_items
    FOR EACH ROW EXECUTE FUNCTION guard_work_item_lifecycle();
CREATE TRIGGER b_claim BEFORE UPDATE ON work_items
    FOR EACH ROW EXECUTE FUNCTION guard_work_item_claim();
CREATE TRIGGER a_birth BEFORE INSERT ON work_items
    FOR EACH ROW EXECUTE FUNCTION guard_work_item_birth();
CREATE TRIGGER a_lifecycle BEFORE UPDATE ON executions
    FOR EACH ROW EXECUTE FUNCTION guard_execution_lifecycle();
CREATE TRIGGER b_counters BEFORE UPDATE ON executions
    FOR EACH ROW EXECUTE FUNCTION guard_execution_counters();
CREATE TRIGGER a_birth BEFORE INSERT ON executions
    FOR EACH ROW EXECUTE FUNCTION guard_execution_birth();
CREATE TRIGGER a_birth BEFORE INSERT ON effect_attempts
    FOR EACH ROW EXECUTE FUNCTION guard_attempt_birth();
CREATE TRIGGER a_change BEFORE UPDATE ON effect_attempts
    FOR EACH ROW EXECUTE FUNCTION guard_attempt_change();
CREATE TRIGGER a_link_version BEFORE UPDATE ON remote_links
    FOR EACH ROW EXECUTE FUNCTION guard_link_version();
CREATE TRIGGER a_generation BEFORE UPDATE ON binding_generations
    FOR EACH ROW EXECUTE FUNCTION guard_generation_change();
CREATE TRIGGER a_key_erasure BEFORE UPDATE ON execution_keys
    FOR EACH ROW EXECUTE FUNCTION guard_key_erasure();
CREATE TRIGGER a_staging BEFORE UPDATE ON staged_payloads
    FOR EACH ROW EXECUTE FUNCTION guard_staging();
CREATE TRIGGER a_sequence BEFORE UPDATE ON lanes
    FOR EACH ROW EXECUTE FUNCTION guard_lane_sequence();
CREATE TRIGGER a_birth BEFORE INSERT ON lanes
    FOR EACH ROW EXECUTE FUNCTION guard_lane_birth();
CREATE TRIGGER a_delivery BEFORE UPDATE ON completions
    FOR EACH ROW EXECUTE FUNCTION guard_completion_delivery();
CREATE TRIGGER b_retention BEFORE DELETE ON handoffs
    FOR EACH ROW EXECUTE FUNCTION guard_admission_removal();

CREATE CONSTRAINT TRIGGER z_couple AFTER INSERT ON commands
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION couple_command();
CREATE CONSTRAINT TRIGGER z_couple AFTER INSERT OR UPDATE ON executions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION couple_execution();
CREATE CONSTRAINT TRIGGER z_couple AFTER INSERT OR UPDATE ON effect_attempts
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION couple_attempt();
CREATE CONSTRAINT TRIGGER z_couple AFTER INSERT OR UPDATE ON work_items
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION couple_work_item();

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['commands', 'binding_views', 'handoffs', 'handoff_conflicts',
        'attempt_evidence', 'contradictions', 'lookups', 'audit', 'sealed_payloads',
        'token_versions', 'lifecycle_transitions', 'settlement_rules', 'org_keys',
        'runtime_work_bindings', 'principal_bindings'] LOOP
        EXECUTE format('CREATE TRIGGER a_append_only BEFORE UPDATE ON %I
                        FOR EACH ROW EXECUTE FUNCTION refuse_change()', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['commands', 'binding_views', 'handoff_conflicts',
        'attempt_evidence', 'contradictions', 'lookups', 'audit', 'executions', 'work_items',
        'effect_attempts', 'completions', 'sealed_payloads', 'execution_keys', 'remote_links',
        'binding_generations', 'token_versions', 'lanes', 'org_keys', 'staged_payloads',
        'runtime_work_bindings', 'principal_bindings', 'lifecycle_transitions',
        'settlement_rules', 'deployment', 'work_nudges'] LOOP
        EXECUTE format('CREATE TRIGGER a_kept BEFORE DELETE ON %I
                        FOR EACH ROW EXECUTE FUNCTION refuse_removal()', name);
        EXECUTE format('CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON %I
                        FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal()', name);
    END LOOP;
    CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON handoffs
        FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal();
END $$;

-- What the application may do: read and add everywhere, change only what has a guarded change.
GRANT SELECT ON ALL TABLES IN SCHEMA oncefence TO oncefence_app;
GRANT INSERT ON handoffs, handoff_conflicts, commands, executions, work_items, lanes,
    effect_attempts, attempt_evidence, contradictions, lookups, staged_payloads, execution_keys,
    sealed_payloads, completions, audit, binding_views, principal_bindings, binding_generations,
    token_versions, remote_links, runtime_work_bindings, org_keys, work_nudges TO oncefence_app;
GRANT UPDATE ON executions, work_items, lanes, effect_attempts, staged_payloads, execution_keys,
    completions, remote_links, binding_generations, work_nudges TO oncefence_app;
