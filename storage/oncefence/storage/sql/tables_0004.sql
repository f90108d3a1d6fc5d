-- Who acts for whom: whose a binding is, which authority each generation stands for, and the grant
-- by which its tokens are renewed. A renewal is an effect at the provider, with a journal row that
-- is its mark: open, and nobody else calls; settled, and it says what came of it.

-- The user of a per-user binding; a shared one is nobody's.
ALTER TABLE principal_bindings
    ADD COLUMN subject text,
    ADD CONSTRAINT a_per_user_binding_has_its_user CHECK ((kind = 'per_user') = (subject IS NOT NULL));

-- What a generation stands for: another value of any of these is another generation. `base_url` is
-- where the provider says that this account lives; null where its binding's own holds.
ALTER TABLE binding_generations
    ADD COLUMN flow text NOT NULL DEFAULT 'bearer'
        CONSTRAINT generation_flow_is_known CHECK (flow IN ('bearer', 'oauth2', 'mint')),
    -- The name in the pack's table of grants; null of a token that was added by hand.
    ADD COLUMN pack_grant text,
    ADD COLUMN issuer text,
    ADD COLUMN account text,
    ADD COLUMN installation text,
    ADD COLUMN scopes text[] NOT NULL DEFAULT '{}',
    ADD COLUMN base_url text,
    ADD COLUMN retired_at timestamptz,
    ADD COLUMN retired_because text,
    -- Whose records are meant: the ordinal of the first generation of this remote account. An account
    -- that is not proven to be the one before is another.
    ADD COLUMN identity_ordinal integer NOT NULL DEFAULT 1;

-- A remote id is one of its account: in another one the same id is another record, or none. A link
-- counts for the generations of the account that it was made in.
ALTER TABLE remote_links ADD COLUMN identity_ordinal integer NOT NULL DEFAULT 1;
DROP INDEX one_live_link_per_subject;
DROP INDEX one_live_link_per_remote_record;
CREATE UNIQUE INDEX one_live_link_per_subject
    ON remote_links (org_id, binding_id, local_object, subject, identity_ordinal)
    WHERE state <> 'retired';
CREATE UNIQUE INDEX one_live_link_per_remote_record
    ON remote_links (org_id, binding_id, remote_object, remote_id, identity_ordinal)
    WHERE state <> 'retired';

ALTER TABLE token_versions
    ADD COLUMN refresh_ciphertext bytea,
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN refresh_expires_at timestamptz,
    ADD COLUMN made_because text NOT NULL DEFAULT 'added'
        CONSTRAINT token_reason_is_known CHECK (made_because IN
            ('added', 'connected', 'expired', 'suspect', 'reauthorized', 'rewrap'));

-- One for each generation. `open_refresh` is the renewal whose answer is out.
CREATE TABLE authorization_grants (
    org_id text NOT NULL,
    generation_id uuid NOT NULL,
    rotation text NOT NULL CONSTRAINT grant_rotation_is_known CHECK (rotation IN
        ('none', 'rotating', 'static', 'grace', 'mint')),
    state text NOT NULL CONSTRAINT grant_state_is_known CHECK (state IN
        ('healthy', 'refresh_unknown', 'needs_reauthorization', 'misconfigured', 'revoked')),
    -- A version that the provider refused with 401; it is not used again.
    suspect_version integer,
    open_refresh uuid,
    failures integer NOT NULL DEFAULT 0,
    -- Before this nobody calls the token endpoint for it again.
    not_before timestamptz,
    failure_class text,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, generation_id),
    FOREIGN KEY (org_id, generation_id) REFERENCES binding_generations
);
INSERT INTO authorization_grants (org_id, generation_id, rotation, state)
SELECT g.org_id, g.generation_id, 'none',
       CASE g.state WHEN 'current' THEN 'healthy' ELSE 'revoked' END
  FROM binding_generations AS g;

-- The ledger of renewals: one row for each call, written before it.
CREATE TABLE token_refreshes (
    org_id text NOT NULL,
    refresh_id uuid NOT NULL,
    generation_id uuid NOT NULL,
    from_version integer NOT NULL,
    rotation text NOT NULL,
    because text NOT NULL CONSTRAINT refresh_reason_is_known
        CHECK (because IN ('expired', 'suspect')),
    -- The live claim that authorised it.
    work_id uuid NOT NULL,
    lease_token uuid NOT NULL,
    ownership_epoch bigint NOT NULL,
    lease_owner uuid NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    settled_at timestamptz,
    -- The claim that settled it; null where its lease ended and somebody else did.
    settled_token uuid,
    -- activated | answered (refused, nothing changed) | unsent | unknown | superseded
    outcome text CONSTRAINT refresh_outcome_is_known CHECK (outcome IN
        ('activated', 'answered', 'unsent', 'unknown', 'superseded')),
    to_version integer,
    failure_class text,
    response_status integer,
    phases jsonb,
    PRIMARY KEY (org_id, refresh_id),
    FOREIGN KEY (org_id, generation_id, from_version) REFERENCES token_versions,
    CONSTRAINT settled_refresh_has_outcome CHECK ((settled_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT activated_has_version CHECK ((outcome = 'activated') = (to_version IS NOT NULL))
);
-- Whatever becomes of a rotating refresh token, it is spent once: only a call that provably changed
-- nothing may be followed by another for the same version.
CREATE UNIQUE INDEX one_spending_per_rotating_version
    ON token_refreshes (org_id, generation_id, from_version)
    WHERE rotation = 'rotating' AND coalesce(outcome, 'open') IN ('open', 'activated', 'unknown');
CREATE UNIQUE INDEX one_open_refresh_per_generation
    ON token_refreshes (org_id, generation_id) WHERE settled_at IS NULL;

-- What a command may use of the provider's quota, frozen at acceptance.
ALTER TABLE commands
    ADD COLUMN quota jsonb NOT NULL DEFAULT '[]',
    ADD COLUMN lookup_quota jsonb NOT NULL DEFAULT '[]';

-- OF050 as before; OF057: what is done with the account of one person is an item of that family, and
-- with nobody's own one of the other, so that a person's work is counted and paused apart.
CREATE OR REPLACE FUNCTION guard_item_view() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    pinned record;
BEGIN
    SELECT c.view_id, b.kind INTO pinned
      FROM commands AS c
      JOIN principal_bindings AS b ON b.org_id = c.org_id AND b.binding_id = c.binding_id
     WHERE c.org_id = NEW.org_id AND c.command_id = NEW.command_id;
    IF pinned.view_id IS DISTINCT FROM NEW.view_id THEN
        RAISE EXCEPTION 'work item %: its command pins another revision', NEW.work_id
            USING ERRCODE = 'OF050';
    END IF;
    IF NEW.family IN ('effect.dispatch', 'connected.deliver')
       AND (NEW.family = 'connected.deliver') <> (pinned.kind = 'per_user') THEN
        RAISE EXCEPTION 'work item %: % is not the family of a % account', NEW.work_id, NEW.family,
            pinned.kind USING ERRCODE = 'OF057';
    END IF;
    RETURN NULL;
END $$;

-- Engines of the version before know no grant, no quota and no breaker.
ALTER TABLE work_items ALTER COLUMN engine_capability SET DEFAULT 4;

GRANT SELECT, INSERT, UPDATE ON authorization_grants, token_refreshes TO oncefence_app;
