-- The tables of the reference Runtime, in a database of its own: see docs/operations/runtime.md.
CREATE SCHEMA crm;

CREATE TABLE crm.leads (
    lead_id text PRIMARY KEY,
    title text NOT NULL,
    version integer NOT NULL DEFAULT 1,
    -- What the provider is known to hold, and as what that became known.
    pushed_title text,
    pushed_version integer NOT NULL DEFAULT 0,
    push_state text NOT NULL DEFAULT 'never pushed',
    results_applied integer NOT NULL DEFAULT 0
);

CREATE TABLE crm.outbox (
    outbox_id text PRIMARY KEY,
    sequence bigint GENERATED ALWAYS AS IDENTITY,
    lead_id text NOT NULL REFERENCES crm.leads,
    lead_version integer NOT NULL,
    operation text NOT NULL,
    payload bytea NOT NULL,
    written_at timestamptz NOT NULL DEFAULT now(),
    -- Why the door turned it away the last time; it may be handed over again.
    refused text,
    -- The receipt: there for good once it is there.
    admission text,
    command_id uuid,
    execution_id uuid,
    CONSTRAINT admission_is_known CHECK (admission IN ('COMMAND_ACCEPTED', 'HANDOFF_REJECTED')),
    CONSTRAINT acceptance_names_its_execution CHECK (
        (admission IS NOT DISTINCT FROM 'COMMAND_ACCEPTED')
        = (execution_id IS NOT NULL AND command_id IS NOT NULL))
);

CREATE TABLE crm.inbox (
    completion_id text PRIMARY KEY,
    outbox_id text NOT NULL,
    execution_id uuid NOT NULL,
    settlement integer NOT NULL,
    supersedes text,
    status text NOT NULL,
    command text NOT NULL,
    command_version integer NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now()
);

-- The one rule of an outbox that no code may forget.
CREATE FUNCTION crm.keep_without_receipt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.admission IS NULL THEN
        RAISE EXCEPTION 'outbox: entry % holds no receipt', OLD.outbox_id USING ERRCODE = 'CR001';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER entry_without_receipt_is_kept BEFORE DELETE ON crm.outbox
    FOR EACH ROW EXECUTE FUNCTION crm.keep_without_receipt();
