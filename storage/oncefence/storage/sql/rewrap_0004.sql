-- Wrapping stored data keys anew under another key of the ring: the one change that a data key
-- knows beside its erasure. Both halves change together, to another key; an erased key stays erased.

CREATE FUNCTION is_rewrap(p_old_key bytea, p_old_id text, p_new_key bytea, p_new_id text)
RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN p_old_key IS NOT NULL AND p_new_key IS NOT NULL
   AND p_new_key <> p_old_key AND p_new_id <> p_old_id;

-- OF023: a data key may be erased, or wrapped anew, and nothing else.
CREATE OR REPLACE FUNCTION guard_key_erasure() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe record;
BEGIN
    probe := NEW;
    IF NEW.wrapped_key IS NULL THEN
        probe.wrapped_key := OLD.wrapped_key;
    ELSIF is_rewrap(OLD.wrapped_key, OLD.key_id, NEW.wrapped_key, NEW.key_id) THEN
        probe.wrapped_key := OLD.wrapped_key;
        probe.key_id := OLD.key_id;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION '%: a key can be erased or wrapped anew, and nothing else', TG_TABLE_NAME
            USING ERRCODE = 'OF023';
    END IF;
    RETURN NEW;
END $$;

-- OF023, of keys that are never erased.
CREATE FUNCTION guard_kept_key() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe record;
BEGIN
    probe := NEW;
    IF is_rewrap(OLD.wrapped_key, OLD.key_id, NEW.wrapped_key, NEW.key_id) THEN
        probe.wrapped_key := OLD.wrapped_key;
        probe.key_id := OLD.key_id;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION '%: a key can be wrapped anew and nothing else', TG_TABLE_NAME
            USING ERRCODE = 'OF023';
    END IF;
    RETURN NEW;
END $$;
DROP TRIGGER a_append_only ON org_keys;
CREATE TRIGGER a_kept_key BEFORE UPDATE ON org_keys
    FOR EACH ROW EXECUTE FUNCTION guard_kept_key();
GRANT UPDATE ON org_keys TO oncefence_app;

-- OF027. Erased bytes may be put again; bytes that are there stay, and only stay longer.
CREATE OR REPLACE FUNCTION guard_staging() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.org_id, NEW.payload_address) IS DISTINCT FROM (OLD.org_id, OLD.payload_address)
       OR NEW.staged_at < OLD.staged_at
       OR (OLD.wrapped_key IS NOT NULL AND NEW.ciphertext <> OLD.ciphertext)
       OR (OLD.wrapped_key IS NOT NULL AND NEW.wrapped_key IS NULL AND NEW.key_id <> OLD.key_id)
       OR (OLD.wrapped_key IS NOT NULL AND NEW.wrapped_key IS NOT NULL
           AND (NEW.wrapped_key, NEW.key_id) <> (OLD.wrapped_key, OLD.key_id)
           AND NOT is_rewrap(OLD.wrapped_key, OLD.key_id, NEW.wrapped_key, NEW.key_id)) THEN
        RAISE EXCEPTION 'staged payload: its key can be erased or wrapped anew and its bytes put '
            'again, no more' USING ERRCODE = 'OF027';
    END IF;
    RETURN NEW;
END $$;

-- OF025. A generation's data key is wrapped anew together with a token version of its own, for
-- what is sealed names the wrapping key.
CREATE OR REPLACE FUNCTION guard_generation_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.org_id, NEW.generation_id, NEW.binding_id, NEW.ordinal)
       IS DISTINCT FROM (OLD.org_id, OLD.generation_id, OLD.binding_id, OLD.ordinal)
       OR (OLD.state = 'retired' AND NEW.state <> 'retired')
       OR NEW.token_version < OLD.token_version THEN
        RAISE EXCEPTION 'generation: it is never another one, never comes back, never loses a token'
            USING ERRCODE = 'OF025';
    END IF;
    IF (NEW.wrapped_key, NEW.key_id) IS DISTINCT FROM (OLD.wrapped_key, OLD.key_id)
       AND NOT (NEW.wrapped_key IS NULL AND NEW.key_id = OLD.key_id)
       AND NOT (is_rewrap(OLD.wrapped_key, OLD.key_id, NEW.wrapped_key, NEW.key_id)
                AND NEW.token_version = OLD.token_version + 1) THEN
        RAISE EXCEPTION 'generation: its key can be erased, or wrapped anew with the next token'
            USING ERRCODE = 'OF025';
    END IF;
    RETURN NEW;
END $$;

-- By the wrapping key: what a start asks for (which keys are in use) and what a rotation looks for
-- (what is not under the new one) must not read every execution there ever was.
CREATE INDEX execution_keys_by_wrapping_key ON execution_keys (key_id)
    WHERE wrapped_key IS NOT NULL;
CREATE INDEX staged_payloads_by_wrapping_key ON staged_payloads (key_id)
    WHERE wrapped_key IS NOT NULL;
GRANT EXECUTE ON FUNCTION is_rewrap TO oncefence_app;
