-- ADD
INSERT INTO oncefence.binding_views (org_id, view_id, installation, name, revision, digest, operations, local_objects, principal_binding, content, published_at, pack_digest, binding_digest, follows_digest, published_by) VALUES (:org_id, :view_id::UUID, :installation, :name, :revision, :digest, :operations, :local_objects, :principal_binding, :content, :published_at, :pack_digest, :binding_digest, :follows_digest, :published_by) RETURNING oncefence.binding_views.view_id, oncefence.binding_views.revision, oncefence.binding_views.digest;

-- _OF_NAME
SELECT oncefence.binding_views.view_id, oncefence.binding_views.revision, oncefence.binding_views.digest
FROM oncefence.binding_views
WHERE oncefence.binding_views.org_id = :of_org AND oncefence.binding_views.installation = :of_installation AND oncefence.binding_views.name = :of_name ORDER BY oncefence.binding_views.revision DESC
 LIMIT :param_1;

-- NEWEST
SELECT oncefence.binding_views.view_id, oncefence.binding_views.revision, oncefence.binding_views.digest
FROM oncefence.binding_views
WHERE oncefence.binding_views.org_id = :of_org AND oncefence.binding_views.installation = :of_installation AND oncefence.binding_views.name = :of_name ORDER BY oncefence.binding_views.revision DESC
 LIMIT :param_1;

-- OF_REVISION
SELECT oncefence.binding_views.view_id, oncefence.binding_views.revision, oncefence.binding_views.digest
FROM oncefence.binding_views
WHERE oncefence.binding_views.org_id = :of_org AND oncefence.binding_views.installation = :of_installation AND oncefence.binding_views.name = :of_name AND oncefence.binding_views.revision = :of_revision ORDER BY oncefence.binding_views.revision DESC
 LIMIT :param_1;
