-- ADD
INSERT INTO oncefence.remote_links (org_id, link_id, binding_id, local_object, subject, remote_object, remote_id, version, state, made_at, identity_ordinal) VALUES (:org_id, :link_id::UUID, :binding_id::UUID, :local_object, :subject, :remote_object, :remote_id, :version, :state, :made_at, :identity_ordinal);
