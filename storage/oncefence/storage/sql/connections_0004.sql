-- Connecting accounts: the apps that we are to a provider, requests for authorisation under way, and
-- what became of ending an authorisation at the provider.

-- With which of our apps a generation's tokens were got; they are renewed as that app and no other.
ALTER TABLE binding_generations ADD COLUMN client_id text;

-- A name is one principal for all, or one for each of its users.
ALTER TABLE principal_bindings
    DROP CONSTRAINT one_binding_per_name,
    ADD CONSTRAINT one_binding_per_name UNIQUE NULLS NOT DISTINCT (org_id, name, subject);

-- Of the org `*` is what every org may use that has none of its own.
CREATE TABLE provider_apps (
    org_id text NOT NULL,
    app_id uuid NOT NULL,
    provider text NOT NULL,
    pack_grant text NOT NULL,
    flow text NOT NULL CONSTRAINT app_flow_is_known CHECK (flow IN ('oauth2', 'mint')),
    client_id text NOT NULL,
    -- The client's secret, or the app's RSA key.
    ciphertext bytea NOT NULL,
    wrapped_key bytea NOT NULL,
    key_id text NOT NULL,
    made_by text NOT NULL,
    note text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at timestamptz,
    PRIMARY KEY (org_id, app_id)
);
CREATE UNIQUE INDEX one_live_app_per_client
    ON provider_apps (org_id, provider, pack_grant, client_id) WHERE retired_at IS NULL;

-- A request for authorisation. `used_at` is its mark: from there on the provider's single-use code may
-- be spent, and nobody spends it again.
CREATE TABLE authorization_requests (
    org_id text NOT NULL,
    request_id uuid NOT NULL,
    act text NOT NULL CONSTRAINT request_act_is_known CHECK (act IN ('connect', 'reauthorize')),
    flow text NOT NULL CONSTRAINT request_flow_is_known CHECK (flow IN ('oauth2', 'mint')),
    binding_id uuid NOT NULL,
    name text NOT NULL,
    provider text NOT NULL,
    kind text NOT NULL CONSTRAINT request_kind_is_known CHECK (kind IN ('shared', 'per_user')),
    subject text,
    base_url text NOT NULL,
    is_local boolean NOT NULL,
    pack_grant text NOT NULL,
    -- The pack's way of getting tokens, as it was when the request was made.
    grant_content jsonb NOT NULL,
    client_id text NOT NULL,
    installation text,
    redirect_uri text,
    state_hash bytea,
    -- The other half of the challenge that the provider was shown. Its key is erased by its one use.
    verifier_ciphertext bytea,
    wrapped_key bytea,
    key_id text,
    -- How its binding stood: another connection in between is not overwritten.
    expected_version text NOT NULL,
    made_by text NOT NULL,
    note text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    used_at timestamptz,
    settled_at timestamptz,
    outcome text CONSTRAINT request_outcome_is_known CHECK (outcome IN
        ('connected', 'reauthorized', 'denied', 'refused', 'unsent', 'lost', 'unfit', 'moved')),
    failure_class text,
    response_status integer,
    phases jsonb,
    generation_id uuid,
    PRIMARY KEY (org_id, request_id),
    FOREIGN KEY (org_id, generation_id) REFERENCES binding_generations,
    CONSTRAINT one_request_per_state UNIQUE (state_hash),
    CONSTRAINT only_a_browser_brings_a_state CHECK (
        (flow = 'oauth2') = (state_hash IS NOT NULL) AND (flow = 'mint') = (installation IS NOT NULL)
        AND (flow = 'oauth2') = (redirect_uri IS NOT NULL)),
    CONSTRAINT a_used_request_has_no_key CHECK (used_at IS NULL OR wrapped_key IS NULL),
    CONSTRAINT a_request_of_a_user_names_it CHECK ((kind = 'per_user') = (subject IS NOT NULL)),
    CONSTRAINT settled_request_has_outcome CHECK (
        (settled_at IS NULL) = (outcome IS NULL) AND (settled_at IS NULL OR used_at IS NOT NULL)),
    CONSTRAINT connected_has_generation CHECK (
        (coalesce(outcome, 'open') IN ('connected', 'reauthorized')) = (generation_id IS NOT NULL))
);

-- One row for each call that ends an authorisation at its provider, written before it. Such a call may
-- be made again: what is ended stays ended.
CREATE TABLE revocations (
    org_id text NOT NULL,
    revocation_id uuid NOT NULL,
    generation_id uuid NOT NULL,
    token_version integer NOT NULL,
    made_by text NOT NULL,
    note text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    settled_at timestamptz,
    outcome text CONSTRAINT revocation_outcome_is_known CHECK (outcome IN
        ('revoked', 'refused', 'unsent', 'lost')),
    failure_class text,
    response_status integer,
    phases jsonb,
    PRIMARY KEY (org_id, revocation_id),
    FOREIGN KEY (org_id, generation_id, token_version) REFERENCES token_versions,
    CONSTRAINT settled_revocation_has_outcome CHECK ((settled_at IS NULL) = (outcome IS NULL))
);

-- OF065: what a generation stands for is written once, and when it ended is written by the end.
CREATE FUNCTION guard_generation_authority() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF (NEW.flow, NEW.pack_grant, NEW.issuer, NEW.account, NEW.installation, NEW.scopes,
        NEW.base_url, NEW.client_id, NEW.identity_ordinal, NEW.made_at)
       IS DISTINCT FROM
       (OLD.flow, OLD.pack_grant, OLD.issuer, OLD.account, OLD.installation, OLD.scopes,
        OLD.base_url, OLD.client_id, OLD.identity_ordinal, OLD.made_at) THEN
        RAISE EXCEPTION 'generation: another authority is another generation'
            USING ERRCODE = 'OF065';
    END IF;
    IF NEW.state = 'retired' AND OLD.state <> 'retired' THEN
        NEW.retired_at := clock_timestamp();
    ELSIF (NEW.retired_at, NEW.retired_because)
          IS DISTINCT FROM (OLD.retired_at, OLD.retired_because) THEN
        RAISE EXCEPTION 'generation: when and why it ended is said as it ends'
            USING ERRCODE = 'OF065';
    END IF;
    IF (NEW.wrapped_key IS NULL AND OLD.wrapped_key IS NOT NULL AND NEW.state <> 'retired')
       OR (NEW.wrapped_key IS NOT NULL AND OLD.wrapped_key IS NULL) THEN
        RAISE EXCEPTION 'generation: its key is erased when it has ended, and never comes back'
            USING ERRCODE = 'OF065';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER b_generation_authority BEFORE UPDATE ON binding_generations
    FOR EACH ROW EXECUTE FUNCTION guard_generation_authority();

-- OF066: an app is exchanged by another row; its key may be wrapped anew.
CREATE FUNCTION guard_provider_app() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe provider_apps;
BEGIN
    probe := NEW;
    IF OLD.retired_at IS NULL THEN
        probe.retired_at := OLD.retired_at;
    END IF;
    IF NEW.key_id <> OLD.key_id AND NEW.wrapped_key <> OLD.wrapped_key THEN
        probe.key_id := OLD.key_id;
        probe.wrapped_key := OLD.wrapped_key;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'provider app: it retires once, and its key is wrapped anew, no more'
            USING ERRCODE = 'OF066';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_provider_app BEFORE UPDATE ON provider_apps
    FOR EACH ROW EXECUTE FUNCTION guard_provider_app();

-- OF067: a request is used once and in time, and settled once, after it was used.
CREATE FUNCTION guard_authorization_request() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe authorization_requests;
BEGIN
    probe := NEW;
    IF NEW.wrapped_key IS NULL THEN
        probe.wrapped_key := OLD.wrapped_key;
    END IF;
    IF OLD.used_at IS NULL THEN
        IF NEW.used_at IS NOT NULL AND OLD.expires_at <= clock_timestamp() THEN
            RAISE EXCEPTION 'authorisation request: it has expired' USING ERRCODE = 'OF067';
        END IF;
        probe.used_at := OLD.used_at;
    ELSIF OLD.settled_at IS NULL THEN
        probe.settled_at := OLD.settled_at;
        probe.outcome := OLD.outcome;
        probe.failure_class := OLD.failure_class;
        probe.response_status := OLD.response_status;
        probe.phases := OLD.phases;
        probe.generation_id := OLD.generation_id;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'authorisation request: it is used once, then settled once'
            USING ERRCODE = 'OF067';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_authorization_request BEFORE UPDATE ON authorization_requests
    FOR EACH ROW EXECUTE FUNCTION guard_authorization_request();
CREATE FUNCTION guard_authorization_request_birth() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    IF NEW.used_at IS NOT NULL OR NEW.settled_at IS NOT NULL
       OR NEW.expires_at > clock_timestamp() + interval '1 hour' THEN
        RAISE EXCEPTION 'authorisation request: begins unused, and for a short time'
            USING ERRCODE = 'OF067';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_authorization_request_birth BEFORE INSERT ON authorization_requests
    FOR EACH ROW EXECUTE FUNCTION guard_authorization_request_birth();

-- OF068: a revocation is settled once, and of what has ended alone.
CREATE FUNCTION guard_revocation() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    probe revocations;
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM FROM binding_generations AS g
          WHERE g.org_id = NEW.org_id AND g.generation_id = NEW.generation_id
            AND g.state = 'retired';
        IF NOT FOUND OR NEW.settled_at IS NOT NULL THEN
            RAISE EXCEPTION 'revocation: begins open, of a generation that has ended'
                USING ERRCODE = 'OF068';
        END IF;
        RETURN NEW;
    END IF;
    probe := NEW;
    IF OLD.settled_at IS NULL THEN
        probe.settled_at := OLD.settled_at;
        probe.outcome := OLD.outcome;
        probe.failure_class := OLD.failure_class;
        probe.response_status := OLD.response_status;
        probe.phases := OLD.phases;
    END IF;
    IF probe IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'revocation: it is settled once' USING ERRCODE = 'OF068';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_revocation BEFORE INSERT OR UPDATE ON revocations
    FOR EACH ROW EXECUTE FUNCTION guard_revocation();

-- A binding is shared, or a user's, for all who are called so.
CREATE FUNCTION guard_binding_kind() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    -- Two that are made at once would not see each other.
    PERFORM pg_advisory_xact_lock(hashtextextended('binding:' || NEW.org_id || ':' || NEW.name, 0));
    PERFORM FROM principal_bindings AS b
      WHERE b.org_id = NEW.org_id AND b.name = NEW.name
        AND (b.kind, b.provider) <> (NEW.kind, NEW.provider);
    IF FOUND THEN
        RAISE EXCEPTION 'binding %: one name is of one kind and one provider', NEW.name
            USING ERRCODE = 'OF069';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER a_binding_kind BEFORE INSERT ON principal_bindings
    FOR EACH ROW EXECUTE FUNCTION guard_binding_kind();

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['provider_apps', 'authorization_requests', 'revocations'] LOOP
        EXECUTE format('CREATE TRIGGER a_kept BEFORE DELETE ON %I FOR EACH ROW '
                       'EXECUTE FUNCTION refuse_removal()', name);
        EXECUTE format('CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON %I FOR EACH STATEMENT '
                       'EXECUTE FUNCTION refuse_removal()', name);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON provider_apps, authorization_requests, revocations TO oncefence_app;
