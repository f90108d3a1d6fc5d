-- The life of a grant: when a token may be used, who may renew it, and what a renewal may write.
-- Of a renewal the order of locks is: item, generation, grant, row of the ledger.

-- From when on a token is renewed before it is used: a bit before its end, since clocks differ and
-- requests take their time; by a minute, or by a tenth of a shorter life. Whatever its reply said of
-- its life, it may be used for a second: no other may be asked for sooner, so one that was born
-- expired would never be used at all. Null of a token without an end.
CREATE FUNCTION token_renewal_due(token token_versions) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN token.expires_at IS NOT NULL THEN greatest(
        token.made_at + interval '1 second',
        token.expires_at - least(interval '60 seconds', (token.expires_at - token.made_at) / 10))
    END
$$;

-- What keeps a command from using the token of its pinned generation now; null where nothing does.
-- Called under the lock of the generation, which whoever activates a token takes, too. It reads
-- the grant and locks nothing: at worst a token is used that another refused at this moment.
CREATE FUNCTION token_obstacle(p_org text, p_generation uuid, OUT obstacle text, OUT until timestamptz)
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    stood record;
BEGIN
    SELECT a.state, a.rotation, a.open_refresh, a.not_before,
           a.suspect_version IS NOT DISTINCT FROM t.version AS is_suspect,
           token_renewal_due(t) AS due INTO stood
      FROM authorization_grants AS a
      JOIN binding_generations AS g
        ON g.org_id = a.org_id AND g.generation_id = a.generation_id
      JOIN token_versions AS t ON t.org_id = g.org_id
       AND t.generation_id = g.generation_id AND t.version = g.token_version
     WHERE a.org_id = p_org AND a.generation_id = p_generation;
    IF NOT FOUND OR stood.state = 'revoked' THEN
        -- Of a binding that was made by the version before, with a token without an end; or its
        -- generation has ended, and its commands end for that.
        RETURN;
    END IF;
    IF stood.state IN ('refresh_unknown', 'needs_reauthorization') THEN
        -- Until a person acts.
        obstacle := 'credential_held';
        RETURN;
    END IF;
    IF NOT stood.is_suspect AND (stood.due IS NULL OR stood.due > clock_timestamp()) THEN
        RETURN;
    END IF;
    IF stood.rotation = 'none' THEN
        obstacle := 'credential_held';
        RETURN;
    END IF;
    SELECT r.lease_until INTO until FROM token_refreshes AS r
     WHERE r.org_id = p_org AND r.refresh_id = stood.open_refresh AND r.settled_at IS NULL;
    IF until > clock_timestamp() THEN
        obstacle := 'token_busy';
    ELSIF stood.not_before > clock_timestamp() THEN
        obstacle := 'credential_held';
        until := stood.not_before;
    ELSE
        -- A call whose lease has ended unsettled is settled by whoever begins the next.
        obstacle := 'token_stale';
        until := NULL;
    END IF;
END $$;

-- A 401 under this version: it is not used again. True where a new token would not help either, so
-- that the credential is at fault: none can be had, or whoever says so was refused under the version
-- before as well (`p_again`).
CREATE FUNCTION note_credential_refused(p_org text, p_generation uuid, p_version integer,
    p_again boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY INVOKER SET search_path = oncefence, pg_temp AS $$
DECLARE
    granted authorization_grants;
    newest integer;
BEGIN
    SELECT * INTO granted FROM authorization_grants AS a
     WHERE a.org_id = p_org AND a.generation_id = p_generation FOR UPDATE;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    SELECT g.token_version INTO newest FROM binding_generations AS g
     WHERE g.org_id = p_org AND g.generation_id = p_generation;
    IF EXISTS (SELECT FROM token_versions AS t
                WHERE t.org_id = p_org AND t.generation_id = p_generation
                  AND t.version > p_version AND t.version <= newest
                  AND t.made_because <> 'rewrap') THEN
        -- Another one has taken its place already.
        RETURN false;
    END IF;
    -- What was only wrapped anew since then is the same token.
    p_version := newest;
    IF granted.rotation = 'none' OR p_again THEN
        UPDATE authorization_grants AS a
           SET state = 'needs_reauthorization', suspect_version = p_version,
               failure_class = 'credential_fault', changed_at = clock_timestamp()
         WHERE a.org_id = p_org AND a.generation_id = p_generation
           AND a.state IN ('healthy', 'misconfigured');
        RETURN true;
    END IF;
    UPDATE authorization_grants AS a
       SET suspect_version = p_version, changed_at = clock_timestamp()
     WHERE a.org_id = p_org AND a.generation_id = p_generation
       AND a.suspect_version IS DISTINCT FROM p_version;
    RETURN false;
END $$;

-- Whether an item waits until a person authorises its principal anew. One whose generation has
-- ended does not: it comes to its own end. Nor does a lookup that its attempt's own starter has
-- spoken for, as that needs no token.
CREATE FUNCTION is_credential_parked(item work_items) RETURNS boolean
LANGUAGE sql STABLE SECURITY INVOKER AS $$
    SELECT EXISTS (
               SELECT FROM oncefence.commands AS c
                 JOIN oncefence.binding_generations AS g ON g.org_id = c.org_id
                  AND g.generation_id = c.generation_id AND g.state = 'current'
                 JOIN oncefence.authorization_grants AS a ON a.org_id = g.org_id
                  AND a.generation_id = g.generation_id
                  AND a.state IN ('refresh_unknown', 'needs_reauthorization')
                WHERE c.org_id = item.org_id AND c.command_id = item.command_id)
       AND NOT EXISTS (
               SELECT FROM oncefence.attempt_evidence AS e
                WHERE e.org_id = item.org_id AND e.attempt_id = item.attempt_id)
$$;
GRANT EXECUTE ON FUNCTION token_renewal_due, token_obstacle, note_credential_refused,
    is_credential_parked TO oncefence_app;

-- OF060: what a grant is never changes, and its states follow one another; OF061: a renewal that
-- is out stands in it until it is settled, and it names no other.
CREATE FUNCTION guard_grant_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.org_id, NEW.generation_id, NEW.rotation)
       IS DISTINCT FROM (OLD.org_id, OLD.generation_id, OLD.rotation)
       OR (OLD.state, NEW.state) IN (
           ('revoked', 'healthy'), ('revoked', 'refresh_unknown'),
           ('revoked', 'needs_reauthorization'), ('revoked', 'misconfigured'),
           ('needs_reauthorization', 'misconfigured'),
           ('needs_reauthorization', 'refresh_unknown')) THEN
        RAISE EXCEPTION 'grant: no move % -> %, and what it is never changes',
            OLD.state, NEW.state USING ERRCODE = 'OF060';
    END IF;
    IF OLD.state = 'needs_reauthorization' AND NEW.state = 'healthy' THEN
        PERFORM FROM binding_generations AS g
          JOIN token_versions AS t ON t.org_id = g.org_id
           AND t.generation_id = g.generation_id AND t.version = g.token_version
         WHERE g.org_id = NEW.org_id AND g.generation_id = NEW.generation_id
           AND t.made_because = 'reauthorized';
        IF NOT FOUND THEN
            RAISE EXCEPTION 'grant: nobody has authorised it anew' USING ERRCODE = 'OF060';
        END IF;
    END IF;
    IF NEW.open_refresh IS DISTINCT FROM OLD.open_refresh AND EXISTS (
            SELECT FROM token_refreshes AS r
             WHERE r.org_id = OLD.org_id AND r.refresh_id = OLD.open_refresh
               AND r.settled_at IS NULL) THEN
        RAISE EXCEPTION 'grant: a renewal of it is out' USING ERRCODE = 'OF061';
    END IF;
    IF NEW.open_refresh IS DISTINCT FROM OLD.open_refresh AND NEW.open_refresh IS NOT NULL
       AND NOT EXISTS (
            SELECT FROM token_refreshes AS r
             WHERE r.org_id = NEW.org_id AND r.refresh_id = NEW.open_refresh
               AND r.generation_id = NEW.generation_id AND r.settled_at IS NULL) THEN
        RAISE EXCEPTION 'grant: no such renewal of it is out' USING ERRCODE = 'OF061';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_grant BEFORE UPDATE ON authorization_grants
    FOR EACH ROW EXECUTE FUNCTION guard_grant_change();
CREATE FUNCTION guard_grant_birth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> 'healthy' OR NEW.open_refresh IS NOT NULL OR NEW.failures <> 0
       OR NEW.suspect_version IS NOT NULL OR NEW.not_before IS NOT NULL THEN
        RAISE EXCEPTION 'grant: begins healthy and with nothing out' USING ERRCODE = 'OF060';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_birth BEFORE INSERT ON authorization_grants
    FOR EACH ROW EXECUTE FUNCTION guard_grant_birth();

-- OF062: a renewal begins open, of the newest token of a current generation, by the live claimant
-- of an item that needs it.
CREATE FUNCTION guard_refresh_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.settled_at IS NOT NULL OR NEW.settled_token IS NOT NULL
       OR num_nonnulls(NEW.failure_class, NEW.response_status, NEW.phases) > 0 THEN
        RAISE EXCEPTION 'renewal: begins open' USING ERRCODE = 'OF062';
    END IF;
    PERFORM FROM work_items AS w
      JOIN commands AS c ON c.org_id = w.org_id AND c.command_id = w.command_id
       AND c.generation_id = NEW.generation_id
     WHERE w.org_id = NEW.org_id AND w.work_id = NEW.work_id AND w.state = 'processing'
       AND w.lease_token = NEW.lease_token AND w.ownership_epoch = NEW.ownership_epoch
       AND w.lease_until > clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'renewal: only the live claimant of an item that needs it may begin one'
            USING ERRCODE = 'OF062';
    END IF;
    PERFORM FROM binding_generations AS g
      JOIN authorization_grants AS a
        ON a.org_id = g.org_id AND a.generation_id = g.generation_id
     WHERE g.org_id = NEW.org_id AND g.generation_id = NEW.generation_id
       AND g.state = 'current' AND g.token_version = NEW.from_version
       AND a.rotation = NEW.rotation AND a.rotation <> 'none'
       AND a.state IN ('healthy', 'misconfigured');
    IF NOT FOUND THEN
        RAISE EXCEPTION 'renewal: of the newest token of a current generation that can be renewed'
            USING ERRCODE = 'OF062';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_birth BEFORE INSERT ON token_refreshes
    FOR EACH ROW EXECUTE FUNCTION guard_refresh_birth();

-- OF063: a renewal is settled once, by the claim that began it, or as lost when its lease has ended.
-- What was lost may still be told by the claim that began it.
CREATE FUNCTION guard_refresh_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe token_refreshes;
BEGIN
    probe := NEW;
    probe.settled_at := OLD.settled_at;
    probe.settled_token := OLD.settled_token;
    probe.outcome := OLD.outcome;
    probe.to_version := OLD.to_version;
    probe.failure_class := OLD.failure_class;
    probe.response_status := OLD.response_status;
    probe.phases := OLD.phases;
    IF probe IS DISTINCT FROM OLD OR NEW.settled_at IS NULL THEN
        RAISE EXCEPTION 'renewal: its settlement is written, and nothing else'
            USING ERRCODE = 'OF063';
    END IF;
    IF OLD.settled_at IS NOT NULL AND (OLD.outcome <> 'unknown'
           OR NEW.outcome NOT IN ('activated', 'answered', 'unsent')) THEN
        RAISE EXCEPTION 'renewal: it was settled as %', OLD.outcome USING ERRCODE = 'OF063';
    END IF;
    IF NEW.settled_token IS DISTINCT FROM OLD.lease_token
       AND (NEW.settled_token IS NOT NULL OR NEW.outcome NOT IN ('unknown', 'superseded')
            OR OLD.lease_until > clock_timestamp()) THEN
        RAISE EXCEPTION 'renewal: only the claim that began it settles it while its lease lasts'
            USING ERRCODE = 'OF063';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_settlement BEFORE UPDATE ON token_refreshes
    FOR EACH ROW EXECUTE FUNCTION guard_refresh_change();

-- OF064: a token version is the next one, and comes of a renewal that is out, of a person, or of the
-- keys; a generation goes on to it and to no other.
CREATE FUNCTION guard_token_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.version <= 1 THEN
        IF NEW.made_because NOT IN ('added', 'connected') THEN
            RAISE EXCEPTION 'token: the first is handed over' USING ERRCODE = 'OF064';
        END IF;
        RETURN NEW;
    END IF;
    PERFORM FROM binding_generations AS g
     WHERE g.org_id = NEW.org_id AND g.generation_id = NEW.generation_id
       AND g.token_version + 1 = NEW.version;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'token: versions follow one another' USING ERRCODE = 'OF064';
    END IF;
    IF NEW.made_because NOT IN ('reauthorized', 'rewrap') AND NOT EXISTS (
            SELECT FROM token_refreshes AS r
             WHERE r.org_id = NEW.org_id AND r.generation_id = NEW.generation_id
               AND r.from_version = NEW.version - 1 AND r.because = NEW.made_because
               AND coalesce(r.outcome, 'unknown') = 'unknown') THEN
        RAISE EXCEPTION 'token: no renewal is out that it could come of' USING ERRCODE = 'OF064';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_birth BEFORE INSERT ON token_versions
    FOR EACH ROW EXECUTE FUNCTION guard_token_birth();
CREATE FUNCTION guard_token_activation() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.token_version <> OLD.token_version AND (
           NEW.token_version <> OLD.token_version + 1 OR NOT EXISTS (
               SELECT FROM token_versions AS t
                WHERE t.org_id = NEW.org_id AND t.generation_id = NEW.generation_id
                  AND t.version = NEW.token_version)) THEN
        RAISE EXCEPTION 'generation: goes on to its next token, which is there'
            USING ERRCODE = 'OF064';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER c_token BEFORE UPDATE ON binding_generations
    FOR EACH ROW EXECUTE FUNCTION guard_token_activation();

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['authorization_grants', 'token_refreshes'] LOOP
        EXECUTE format('CREATE TRIGGER a_kept BEFORE DELETE ON %I
                        FOR EACH ROW EXECUTE FUNCTION refuse_removal()', name);
        EXECUTE format('CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON %I
                        FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal()', name);
    END LOOP;
END $$;
