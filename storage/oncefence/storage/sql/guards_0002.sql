-- Guards of the whole kernel: what is new, and the two guards of work items with its columns.

CREATE OR REPLACE FUNCTION guard_work_item_lifecycle() RETURNS trigger
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
    -- A cancellation is asked for once, of an item that somebody holds.
    IF OLD.state = 'processing' AND OLD.cancel_requested_at IS NULL THEN
        probe.cancel_requested_at := OLD.cancel_requested_at;
    END IF;
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

CREATE OR REPLACE FUNCTION guard_work_item_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.state <> 'pending' OR NEW.via <> 'create' OR NEW.attempt <> 0 OR NEW.claims_lost <> 0
       OR NEW.ownership_epoch <> 0 OR NEW.lease_token IS NOT NULL OR NEW.lease_owner IS NOT NULL
       OR NEW.lease_until IS NOT NULL OR NEW.outcome IS NOT NULL
       OR NEW.failure_class IS NOT NULL OR NEW.cancel_requested_at IS NOT NULL
       OR NEW.left_by IS NOT NULL THEN
        RAISE EXCEPTION 'work item: begins pending, unclaimed and without an end'
            USING ERRCODE = 'OF002';
    END IF;
    IF NEW.definition IS NULL OR NEW.view_revision IS NULL THEN
        -- Made by a door of the version before, while a deployment rolls: it knows nothing of
        -- these columns, and the facts that fill them are there.
        NEW.definition := coalesce(NEW.definition, (
            SELECT c.operation FROM commands AS c
             WHERE c.org_id = NEW.org_id AND c.command_id = NEW.command_id), NEW.family);
        NEW.provider := coalesce(NEW.provider, (
            SELECT c.provider FROM commands AS c
             WHERE c.org_id = NEW.org_id AND c.command_id = NEW.command_id));
        NEW.binding_id := coalesce(NEW.binding_id, (
            SELECT c.binding_id FROM commands AS c
             WHERE c.org_id = NEW.org_id AND c.command_id = NEW.command_id));
        NEW.view_revision := coalesce(NEW.view_revision, (
            SELECT v.revision FROM binding_views AS v
             WHERE v.org_id = NEW.org_id AND v.view_id = NEW.view_id));
    END IF;
    RETURN NEW;
END $$;

-- OF007 of the new columns; OF009: a deferred item is never due before it was. It also notes
-- which claim left the item, and lets nobody else say so. A request to cancel outlives its claim.
CREATE FUNCTION guard_work_item_terms() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.definition, NEW.view_revision, NEW.provider, NEW.binding_id)
       IS DISTINCT FROM (OLD.definition, OLD.view_revision, OLD.provider, OLD.binding_id) THEN
        RAISE EXCEPTION 'work item: what it is never changes' USING ERRCODE = 'OF007';
    END IF;
    IF NEW.state = 'retry' AND NEW.via = 'defer' AND OLD.state = 'processing'
       AND NEW.run_after < OLD.run_after THEN
        RAISE EXCEPTION 'work item: deferred, it cannot be due earlier than it was'
            USING ERRCODE = 'OF009';
    END IF;
    IF NEW.left_by IS DISTINCT FROM OLD.left_by
       OR (NEW.cancel_requested_at IS DISTINCT FROM OLD.cancel_requested_at
           AND (NEW.state <> OLD.state OR NEW.ownership_epoch <> OLD.ownership_epoch)) THEN
        RAISE EXCEPTION 'work item: no move says who left it, or asks for a cancellation'
            USING ERRCODE = 'OF007';
    END IF;
    IF NEW.lease_token IS NULL AND OLD.lease_token IS NOT NULL THEN
        -- A claim that ended by expiry did not leave: somebody else ended it, and its claimant,
        -- who may still be there, is to be told so.
        NEW.left_by := CASE WHEN NEW.via <> 'attempt_lost' AND NEW.claims_lost = OLD.claims_lost
                            THEN OLD.lease_token END;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER c_terms BEFORE UPDATE ON work_items
    FOR EACH ROW EXECUTE FUNCTION guard_work_item_terms();

-- OF011, as before, and of its item's own execution: what refers to the item needs no second
-- reference to the command and the execution that the item refers to.
CREATE OR REPLACE FUNCTION guard_attempt_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.settled_at IS NOT NULL OR NEW.disposition IS NOT NULL OR NEW.superseded_by IS NOT NULL
       OR NEW.settled_token IS NOT NULL OR NEW.response_status IS NOT NULL THEN
        RAISE EXCEPTION 'attempt: begins unsettled' USING ERRCODE = 'OF011';
    END IF;
    PERFORM FROM work_items AS w
      WHERE w.org_id = NEW.org_id AND w.work_id = NEW.work_id AND w.state = 'processing'
        AND w.lease_token = NEW.lease_token AND w.ownership_epoch = NEW.ownership_epoch
        AND w.command_id = NEW.command_id AND w.execution_id = NEW.execution_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt: only the live claimant of its item may begin one'
            USING ERRCODE = 'OF011';
    END IF;
    RETURN NEW;
END $$;

-- OF010: only the holder of the token that started an attempt can speak about it.
CREATE FUNCTION guard_evidence_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM FROM effect_attempts AS a
      WHERE a.org_id = NEW.org_id AND a.attempt_id = NEW.attempt_id
        AND a.lease_token = NEW.start_token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'evidence: only the claim that began attempt % can speak about it',
            NEW.attempt_id USING ERRCODE = 'OF010';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_starter BEFORE INSERT ON attempt_evidence
    FOR EACH ROW EXECUTE FUNCTION guard_evidence_birth();

-- OF030 .. OF032, as before, with fewer reads. Each version of a row that a transaction makes has
-- an event of its own, and the newest one's is about the row as it is at COMMIT. So a version that
-- fits the other tables needs no look at its row; one that does not may have been left behind,
-- and its row is read before anything is refused.
CREATE OR REPLACE FUNCTION couple_execution() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    -- That there is one open attempt at most is what `one_unsettled` holds.
    IF (NEW.status = 'running') <> EXISTS (
            SELECT FROM effect_attempts AS a
             WHERE a.org_id = NEW.org_id AND a.command_id = NEW.command_id
               AND a.started_at IS NOT NULL AND a.settled_at IS NULL)
       OR (NEW.status = 'unknown') <> EXISTS (
            SELECT FROM work_items AS w
             WHERE w.org_id = NEW.org_id AND w.command_id = NEW.command_id
               AND w.family = 'effect.lookup'
               AND w.state IN ('pending', 'processing', 'retry')) THEN
        PERFORM check_execution_coupling(NEW.org_id, NEW.execution_id);
    END IF;
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION couple_attempt() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    attempt effect_attempts;
BEGIN
    IF NEW.started_at IS NOT NULL AND NEW.settled_at IS NULL THEN
        -- The token is for the index of what is held; where it has another one by now, the item
        -- is read by its key.
        IF EXISTS (
                SELECT FROM work_items AS w
                 WHERE w.org_id = NEW.org_id AND w.work_id = NEW.work_id
                   AND w.lease_token = NEW.lease_token AND w.state = 'processing')
           AND (SELECT e.status = 'running' AND e.command_id = NEW.command_id
                  FROM executions AS e
                 WHERE e.org_id = NEW.org_id AND e.execution_id = NEW.execution_id) THEN
            RETURN NULL;
        END IF;
        SELECT * INTO attempt FROM effect_attempts AS a
         WHERE a.org_id = NEW.org_id AND a.attempt_id = NEW.attempt_id;
        IF attempt.settled_at IS NULL THEN
            PERFORM FROM work_items AS w
              WHERE w.org_id = attempt.org_id AND w.work_id = attempt.work_id
                AND w.state = 'processing';
            IF NOT FOUND THEN
                RAISE EXCEPTION 'attempt %: open, but nobody holds its item', attempt.attempt_id
                    USING ERRCODE = 'OF031';
            END IF;
        END IF;
    END IF;
    -- So that an execution which has counted no attempt has nothing in doubt.
    IF NEW.may_have_applied AND NOT EXISTS (
            SELECT FROM executions AS e
             WHERE e.org_id = NEW.org_id AND e.execution_id = NEW.execution_id
               AND e.attempt >= NEW.ordinal) THEN
        RAISE EXCEPTION 'attempt %: in doubt, but its execution has not counted it',
            NEW.attempt_id USING ERRCODE = 'OF030';
    END IF;
    PERFORM check_execution_coupling(NEW.org_id, NEW.execution_id);
    RETURN NULL;
END $$;
CREATE OR REPLACE FUNCTION couple_work_item() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    item work_items;
BEGIN
    IF NEW.state <> 'processing' AND EXISTS (
            SELECT FROM effect_attempts AS a
             WHERE a.org_id = NEW.org_id AND a.command_id = NEW.command_id
               AND a.work_id = NEW.work_id
               AND a.started_at IS NOT NULL AND a.settled_at IS NULL) THEN
        SELECT * INTO item FROM work_items AS w
         WHERE w.org_id = NEW.org_id AND w.work_id = NEW.work_id;
        IF item.state <> 'processing' THEN
            RAISE EXCEPTION 'work item %: % with an open attempt', item.work_id, item.state
                USING ERRCODE = 'OF031';
        END IF;
    END IF;
    IF NEW.family = 'effect.lookup' THEN
        PERFORM check_execution_coupling(NEW.org_id, NEW.execution_id);
    END IF;
    RETURN NULL;
END $$;

-- OF016: a pause is ended once and never changed; OF017: an operator is only ever revoked;
-- OF018: a revision of a read model goes on; OF019: the head of a chain goes on by one.
CREATE FUNCTION guard_pause_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    probe record;
BEGIN
    probe := NEW;
    IF OLD.resumed_at IS NULL THEN
        probe.resumed_by := OLD.resumed_by;
        probe.resumed_note := OLD.resumed_note;
        probe.resumed_at := OLD.resumed_at;
        probe.ramp_seconds := OLD.ramp_seconds;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'pause: it is ended once, and nothing else of it changes'
            USING ERRCODE = 'OF016';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_pause_birth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.resumed_at IS NOT NULL THEN
        RAISE EXCEPTION 'pause: begins in force' USING ERRCODE = 'OF016';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_operator_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    probe record;
BEGIN
    probe := NEW;
    IF OLD.revoked_at IS NULL THEN
        probe.revoked_at := OLD.revoked_at;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'operator: is revoked once, and nothing else of it changes'
            USING ERRCODE = 'OF017';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_revision_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.view_name <> OLD.view_name OR NEW.revision <= OLD.revision THEN
        RAISE EXCEPTION 'read model: its revision only goes on' USING ERRCODE = 'OF018';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_audit_head() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.org_id <> OLD.org_id OR NEW.sequence <> OLD.sequence + 1 THEN
        RAISE EXCEPTION 'audit: its chain goes on by one' USING ERRCODE = 'OF019';
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION guard_audit_head_birth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.sequence <> 0 OR NEW.digest <> '' THEN
        RAISE EXCEPTION 'audit: its chain begins empty' USING ERRCODE = 'OF019';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_pause BEFORE UPDATE ON pauses
    FOR EACH ROW EXECUTE FUNCTION guard_pause_change();
CREATE TRIGGER a_birth BEFORE INSERT ON pauses
    FOR EACH ROW EXECUTE FUNCTION guard_pause_birth();
CREATE TRIGGER a_operator BEFORE UPDATE ON operators
    FOR EACH ROW EXECUTE FUNCTION guard_operator_change();
CREATE TRIGGER a_revision BEFORE UPDATE ON pressure_revisions
    FOR EACH ROW EXECUTE FUNCTION guard_revision_change();
CREATE TRIGGER a_head BEFORE UPDATE ON audit_heads
    FOR EACH ROW EXECUTE FUNCTION guard_audit_head();
CREATE TRIGGER a_birth BEFORE INSERT ON audit_heads
    FOR EACH ROW EXECUTE FUNCTION guard_audit_head_birth();

-- The chain: each row's digest is of all that it says and of the row before it.
CREATE FUNCTION audit_digest(entry audit) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT sha256(coalesce(entry.previous, ''::bytea) || convert_to(jsonb_build_array(
        entry.org_id, entry.sequence, extract(epoch FROM entry.at), entry.actor, entry.act,
        entry.subject_kind, entry.subject_id, entry.note, entry.expected_version)::text, 'UTF8'))
$$;
CREATE FUNCTION chain_audit() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    head audit_heads;
BEGIN
    -- The upsert locks the head until COMMIT, so rows of one org follow one another.
    INSERT INTO audit_heads AS h (org_id, sequence, digest) VALUES (NEW.org_id, 0, '')
    ON CONFLICT (org_id) DO NOTHING;
    SELECT * INTO head FROM audit_heads AS h WHERE h.org_id = NEW.org_id FOR UPDATE;
    NEW.sequence := head.sequence + 1;
    NEW.previous := head.digest;
    NEW.digest := audit_digest(NEW);
    UPDATE audit_heads AS h SET sequence = NEW.sequence, digest = NEW.digest
     WHERE h.org_id = NEW.org_id;
    RETURN NEW;
END $$;
DO $$
DECLARE
    entry audit;
BEGIN
    -- What was there before the chain becomes its beginning.
    FOR entry IN SELECT * FROM audit ORDER BY org_id, audit_id LOOP
        INSERT INTO audit_heads AS h (org_id, sequence, digest) VALUES (entry.org_id, 0, '')
        ON CONFLICT (org_id) DO NOTHING;
        SELECT h.sequence + 1, h.digest INTO entry.sequence, entry.previous
          FROM audit_heads AS h WHERE h.org_id = entry.org_id;
        entry.digest := audit_digest(entry);
        UPDATE audit AS a
           SET sequence = entry.sequence, previous = entry.previous, digest = entry.digest
         WHERE a.org_id = entry.org_id AND a.audit_id = entry.audit_id;
        UPDATE audit_heads AS h SET sequence = entry.sequence, digest = entry.digest
         WHERE h.org_id = entry.org_id;
    END LOOP;
END $$;
ALTER TABLE audit
    ALTER COLUMN sequence SET NOT NULL,
    ALTER COLUMN previous SET NOT NULL,
    ALTER COLUMN digest SET NOT NULL,
    ADD CONSTRAINT one_audit_row_per_link_of_the_chain UNIQUE (org_id, sequence);
ALTER TABLE audit ENABLE TRIGGER USER;
CREATE TRIGGER a_chain BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION chain_audit();

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['pauses', 'operators', 'audit_heads', 'pressure_revisions',
                                'work_pressure'] LOOP
        EXECUTE format('CREATE TRIGGER a_kept BEFORE DELETE ON %I
                        FOR EACH ROW EXECUTE FUNCTION refuse_removal()', name);
        EXECUTE format('CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON %I
                        FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal()', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON pauses, operators, audit_heads, pressure_revisions, work_pressure
    TO oncefence_app;
GRANT EXECUTE ON FUNCTION audit_digest TO oncefence_app;
