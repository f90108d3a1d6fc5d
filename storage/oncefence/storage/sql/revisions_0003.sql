-- Revisions of a binding: where each comes from, which one is current, and that no step takes one
-- half of its terms from one revision and the other half from another.

-- The lineage of a revision: the digests of what it was made of and of the revision before it.
ALTER TABLE binding_views DISABLE TRIGGER USER;
ALTER TABLE binding_views
    ADD COLUMN pack_digest text,
    ADD COLUMN binding_digest text,
    -- Null of the first.
    ADD COLUMN follows_digest text,
    ADD COLUMN published_by text;
UPDATE binding_views AS v
   SET pack_digest = v.content::jsonb ->> 'pack_digest',
       binding_digest = v.content::jsonb ->> 'binding_digest',
       follows_digest = (SELECT p.digest FROM binding_views AS p
                          WHERE p.org_id = v.org_id AND p.installation = v.installation
                            AND p.name = v.name AND p.revision = v.revision - 1),
       published_by = coalesce(
           (SELECT a.actor FROM audit AS a
             WHERE a.org_id = v.org_id AND a.act = 'catalog.publish'
               AND a.subject_id = v.view_id::text
             ORDER BY a.sequence LIMIT 1), 'unknown');
ALTER TABLE binding_views
    ALTER COLUMN pack_digest SET NOT NULL,
    ALTER COLUMN binding_digest SET NOT NULL,
    ALTER COLUMN published_by SET NOT NULL,
    -- The primary key and more, so that whatever pins a view pins all of it.
    ADD CONSTRAINT views_by_digest UNIQUE (org_id, view_id, digest),
    ADD CONSTRAINT views_by_revision UNIQUE (org_id, view_id, digest, revision, installation);
ALTER TABLE binding_views ENABLE TRIGGER USER;

-- Which revision new commands are accepted under: the one of the newest row. Activating an older
-- revision is a row more, so the way back is on record like the way there.
CREATE TABLE view_activations (
    org_id text NOT NULL,
    installation text NOT NULL,
    name text NOT NULL,
    ordinal integer NOT NULL,
    view_id uuid NOT NULL,
    -- The view that was current until then; null of the first row of a name.
    replaces uuid,
    activated_by text NOT NULL,
    note text NOT NULL,
    activated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (org_id, installation, name, ordinal),
    FOREIGN KEY (org_id, view_id) REFERENCES binding_views,
    FOREIGN KEY (org_id, replaces) REFERENCES binding_views
);
-- Up to now the newest revision was the one in use.
INSERT INTO view_activations (org_id, installation, name, ordinal, view_id, activated_by, note)
SELECT DISTINCT ON (v.org_id, v.installation, v.name) v.org_id, v.installation, v.name, 1,
       v.view_id, 'migration', 'the newest revision when activations began'
  FROM binding_views AS v
 ORDER BY v.org_id, v.installation, v.name, v.revision DESC;

-- View, digest, revision and installation are pinned as one, by commands and by items.
ALTER TABLE commands
    DROP CONSTRAINT commands_org_id_view_id_fkey,
    ADD CONSTRAINT commands_pin_a_whole_view FOREIGN KEY (org_id, view_id, view_digest)
        REFERENCES binding_views (org_id, view_id, digest);
ALTER TABLE work_items
    DROP CONSTRAINT work_items_org_id_view_id_fkey,
    ADD CONSTRAINT items_pin_a_whole_view
        FOREIGN KEY (org_id, view_id, view_digest, view_revision, installation)
        REFERENCES binding_views (org_id, view_id, digest, revision, installation);

-- OF050: an item is of the revision of its command; OF051: a command is of a revision that has
-- been current, and of an operation that it offers; OF052: an attempt sends its command's request
-- to its command's account and record; OF053: a view's digests are those of its content; OF054: a
-- revision goes on from the one before it; OF055: an activation is of a view of its name; OF056:
-- it goes on from the one before it. Each looks at what was written beside it, and so comes after
-- the statement; and after the foreign keys, so that whoever points nowhere is told so.
CREATE FUNCTION guard_item_view() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM FROM commands AS c
      WHERE c.org_id = NEW.org_id AND c.command_id = NEW.command_id AND c.view_id = NEW.view_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'work item %: its command pins another revision', NEW.work_id
            USING ERRCODE = 'OF050';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION guard_command_view() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM FROM binding_views AS v
      WHERE v.org_id = NEW.org_id AND v.view_id = NEW.view_id
        AND NEW.operation = ANY (v.operations)
        AND EXISTS (SELECT FROM view_activations AS a
                     WHERE a.org_id = v.org_id AND a.installation = v.installation
                       AND a.name = v.name AND a.view_id = v.view_id);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'command %: its revision was never current or lacks its operation',
            NEW.command_id USING ERRCODE = 'OF051';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION guard_attempt_pins() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
BEGIN
    PERFORM FROM commands AS c
      WHERE c.org_id = NEW.org_id AND c.command_id = NEW.command_id
        AND (c.request_method, c.request_target, c.request_headers, c.request_body_address,
             c.idempotency_key, c.generation_id, c.link_id, c.link_version)
            IS NOT DISTINCT FROM
            (NEW.method, NEW.relative_target, NEW.safe_headers, NEW.body_address,
             NEW.idempotency_key, NEW.generation_id, NEW.link_id, NEW.link_version);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'attempt %: its command pins another request, account or record',
            NEW.attempt_id USING ERRCODE = 'OF052';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION guard_view_lineage() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    before text;
BEGIN
    IF NEW.digest <> encode(sha256(convert_to(NEW.content, 'UTF8')), 'hex')
       OR (NEW.pack_digest, NEW.binding_digest, NEW.name) IS DISTINCT FROM
          (NEW.content::jsonb ->> 'pack_digest', NEW.content::jsonb ->> 'binding_digest',
           NEW.content::jsonb ->> 'name') THEN
        RAISE EXCEPTION 'view %: its digests are not those of its content', NEW.view_id
            USING ERRCODE = 'OF053';
    END IF;
    SELECT v.digest INTO before FROM binding_views AS v
     WHERE v.org_id = NEW.org_id AND v.installation = NEW.installation AND v.name = NEW.name
       AND v.revision = NEW.revision - 1;
    IF NEW.follows_digest IS DISTINCT FROM before OR (before IS NULL) <> (NEW.revision = 1) THEN
        RAISE EXCEPTION 'view %: it does not follow the revision before it', NEW.view_id
            USING ERRCODE = 'OF054';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION guard_activation() RETURNS trigger
LANGUAGE plpgsql SET search_path = oncefence, pg_temp AS $$
DECLARE
    before uuid;
BEGIN
    PERFORM FROM binding_views AS v
      WHERE v.org_id = NEW.org_id AND v.view_id = NEW.view_id
        AND v.installation = NEW.installation AND v.name = NEW.name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'activation: % is no revision of %', NEW.view_id, NEW.name
            USING ERRCODE = 'OF055';
    END IF;
    SELECT a.view_id INTO before FROM view_activations AS a
     WHERE a.org_id = NEW.org_id AND a.installation = NEW.installation AND a.name = NEW.name
       AND a.ordinal = NEW.ordinal - 1;
    IF NEW.replaces IS DISTINCT FROM before OR (before IS NULL) <> (NEW.ordinal = 1)
       OR NEW.view_id = before THEN
        RAISE EXCEPTION 'activation: it goes on from the revision that is current'
            USING ERRCODE = 'OF056';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER y_view AFTER INSERT ON work_items
    FOR EACH ROW WHEN (NEW.command_id IS NOT NULL) EXECUTE FUNCTION guard_item_view();
CREATE TRIGGER y_view AFTER INSERT ON commands
    FOR EACH ROW EXECUTE FUNCTION guard_command_view();
CREATE TRIGGER y_pins AFTER INSERT ON effect_attempts
    FOR EACH ROW EXECUTE FUNCTION guard_attempt_pins();
CREATE TRIGGER y_lineage AFTER INSERT ON binding_views
    FOR EACH ROW EXECUTE FUNCTION guard_view_lineage();
CREATE TRIGGER y_order AFTER INSERT ON view_activations
    FOR EACH ROW EXECUTE FUNCTION guard_activation();

CREATE TRIGGER a_append_only BEFORE UPDATE ON view_activations
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER a_kept BEFORE DELETE ON view_activations
    FOR EACH ROW EXECUTE FUNCTION refuse_removal();
CREATE TRIGGER a_kept_whole BEFORE TRUNCATE ON view_activations
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_removal();
GRANT SELECT, INSERT ON view_activations TO oncefence_app;
