-- Records that are being created, and what makes a repeat under a provider's own key safe.
--
-- A create has no record to point at. Its command holds a create slot instead: a link in state
-- `creating`, without a remote id, which becomes the link of the new record in the transaction
-- that settles the command, or is given back where nothing was created.

ALTER TABLE remote_links
    ALTER COLUMN remote_id DROP NOT NULL,
    DROP CONSTRAINT link_state_is_known,
    ADD CONSTRAINT link_state_is_known
        CHECK (state IN ('creating', 'active', 'suspended', 'retired')),
    -- A slot that was given back never had a record.
    ADD CONSTRAINT a_link_has_its_record CHECK (
        CASE state WHEN 'creating' THEN remote_id IS NULL
                   WHEN 'retired' THEN true
                   ELSE remote_id IS NOT NULL END);

-- A command without a remote id is a create.
ALTER TABLE commands
    ALTER COLUMN remote_id DROP NOT NULL,
    -- No attempt is marked before a read found that the record is not there already.
    ADD COLUMN looks_first boolean NOT NULL DEFAULT false,
    ADD CONSTRAINT only_a_create_looks_first CHECK (NOT looks_first OR remote_id IS NULL),
    ADD CONSTRAINT a_key_has_its_window CHECK (
        (idempotency_key IS NULL) = (replay_window_seconds IS NULL)
        AND coalesce(replay_window_seconds > 0, true));
CREATE UNIQUE INDEX one_command_per_create_slot ON commands (org_id, link_id)
    WHERE remote_id IS NULL;

-- The read before a create is about no attempt: there is none yet.
ALTER TABLE lookups ALTER COLUMN attempt_id DROP NOT NULL;

-- Views speak of more than engines of the version before can read.
ALTER TABLE work_items ALTER COLUMN engine_capability SET DEFAULT 3;

-- OF024 as before; OF029: a slot becomes a link once or is given back, and no link becomes a slot.
CREATE OR REPLACE FUNCTION guard_link_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW IS DISTINCT FROM OLD AND (NEW.version <> OLD.version + 1 OR OLD.state = 'retired'
        OR (NEW.org_id, NEW.link_id, NEW.binding_id, NEW.local_object, NEW.subject)
           IS DISTINCT FROM
           (OLD.org_id, OLD.link_id, OLD.binding_id, OLD.local_object, OLD.subject)) THEN
        RAISE EXCEPTION 'link: every change is the next version of the same live link'
            USING ERRCODE = 'OF024';
    END IF;
    IF NEW IS DISTINCT FROM OLD AND (OLD.state = 'creating' OR NEW.state = 'creating') AND NOT (
            OLD.state = 'creating' AND NEW.remote_object = OLD.remote_object
            AND (NEW.state = 'active' OR (NEW.state = 'retired' AND NEW.remote_id IS NULL))) THEN
        RAISE EXCEPTION 'link: a create slot becomes the link of its record or is given back'
            USING ERRCODE = 'OF029';
    END IF;
    RETURN NEW;
END $$;

-- OF034: at COMMIT a slot has the one create that holds it. It is open as long as that is undecided,
-- a link where it succeeded, and given back where it ended without effect.
CREATE FUNCTION couple_slot() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    link remote_links;
    create_status text;
BEGIN
    SELECT * INTO link FROM remote_links AS l
     WHERE l.org_id = NEW.org_id AND l.link_id = NEW.link_id;
    SELECT e.status INTO create_status
      FROM commands AS c
      JOIN executions AS e ON e.org_id = c.org_id AND e.command_id = c.command_id
     WHERE c.org_id = link.org_id AND c.link_id = link.link_id AND c.remote_id IS NULL;
    IF (CASE WHEN link.remote_id IS NOT NULL THEN 'a link'
             WHEN link.state = 'creating' THEN 'open' ELSE 'given back' END)
       IS DISTINCT FROM
       (CASE WHEN create_status = 'succeeded' THEN 'a link'
             WHEN create_status IN ('failed', 'cancelled') THEN 'given back'
             WHEN create_status IS NOT NULL THEN 'open' END) THEN
        RAISE EXCEPTION 'link %: its slot is %, and its create is %', link.link_id, link.state,
            coalesce(create_status, 'not there') USING ERRCODE = 'OF034';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER z_couple_birth AFTER INSERT ON remote_links
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state = 'creating')
    EXECUTE FUNCTION couple_slot();
CREATE CONSTRAINT TRIGGER z_couple AFTER UPDATE ON remote_links
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.state = 'creating')
    EXECUTE FUNCTION couple_slot();

-- OF033 as before; OF035: a create holds an open slot when it is accepted.
CREATE OR REPLACE FUNCTION couple_command() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM FROM handoffs AS h
      WHERE h.org_id = NEW.org_id AND h.command_id = NEW.command_id
        AND h.handoff_key = NEW.handoff_key;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'command %: nobody accepted it', NEW.command_id USING ERRCODE = 'OF033';
    END IF;
    IF NEW.remote_id IS NULL THEN
        PERFORM FROM remote_links AS l
          WHERE l.org_id = NEW.org_id AND l.link_id = NEW.link_id AND l.state = 'creating';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'command %: a create without a slot', NEW.command_id
                USING ERRCODE = 'OF035';
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- Until when a command may be repeated under the provider's own key: its window counts from the
-- first attempt, whatever became of that.
CREATE FUNCTION replay_ends(p_org text, p_command uuid, p_window_seconds integer)
RETURNS timestamptz
LANGUAGE sql STABLE SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    SELECT min(a.started_as_of) + make_interval(secs => p_window_seconds)
      FROM effect_attempts AS a
     WHERE a.org_id = p_org AND a.command_id = p_command
$$;

-- OF015: what may have applied is only repeated under the provider's own key, and while that is
-- kept. A first attempt repeats nothing, and is asked nothing.
CREATE FUNCTION guard_replay() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF EXISTS (
            SELECT FROM effect_attempts AS a
              JOIN commands AS c ON c.org_id = a.org_id AND c.command_id = a.command_id
             WHERE a.org_id = NEW.org_id AND a.command_id = NEW.command_id
               AND a.outcome = 'REPLAY_SAFE_RETRY' AND a.may_have_applied
               AND a.disposition IS NULL
               AND (c.idempotency_key IS NOT NULL
                    AND NEW.started_as_of + make_interval(secs => NEW.deadline_ms / 1000.0)
                        < replay_ends(a.org_id, a.command_id, c.replay_window_seconds)
                   ) IS NOT TRUE) THEN
        RAISE EXCEPTION 'attempt: repeats what may have applied, and no key of the provider covers it'
            USING ERRCODE = 'OF015';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER b_replay BEFORE INSERT ON effect_attempts
    FOR EACH ROW WHEN (NEW.ordinal > 1) EXECUTE FUNCTION guard_replay();

-- The slot of a create becomes the link of the record that was created. False where it cannot:
-- the provider named a record that another link stands for.
CREATE FUNCTION fill_create_slot(p_org text, p_link uuid, p_remote_id text) RETURNS boolean
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
BEGIN
    UPDATE remote_links AS l
       SET state = 'active', remote_id = p_remote_id, version = l.version + 1
     WHERE l.org_id = p_org AND l.link_id = p_link AND l.state = 'creating'
       AND p_remote_id IS NOT NULL;
    RETURN FOUND;
EXCEPTION WHEN unique_violation THEN
    RETURN false;
END $$;

-- The slot of a create that ended without effect is given back, and another may be accepted.
CREATE FUNCTION give_back_create_slot(p_org text, p_link uuid) RETURNS void
LANGUAGE sql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
    UPDATE remote_links AS l SET state = 'retired', version = l.version + 1
     WHERE l.org_id = p_org AND l.link_id = p_link AND l.state = 'creating'
$$;
GRANT EXECUTE ON FUNCTION replay_ends, fill_create_slot, give_back_create_slot TO oncefence_app;
