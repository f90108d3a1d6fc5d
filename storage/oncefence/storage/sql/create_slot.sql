), slot AS (
    -- The part of the acceptance that a create has more than others. The index of live links holds
    -- its place against every other create, and against a link; whoever comes second is told by the
    -- violation.
    INSERT INTO oncefence.remote_links (org_id, link_id, binding_id, local_object, subject,
        remote_object, identity_ordinal, state)
    SELECT a.org_id, :link_id, :binding_id, :local_object, :subject, :remote_object,
        :identity_ordinal, 'creating'
      FROM admitted AS a
