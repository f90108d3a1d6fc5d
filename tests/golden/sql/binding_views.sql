-- ADD
INSERT INTO oncefence.binding_views (org_id, view_id, installation, name, revision, digest, operations, local_objects, principal_binding, content, published_at) VALUES (:org_id, :view_id::UUID, :installation, :name, :revision, :digest, :operations, :local_objects, :principal_binding, :content, :published_at);
