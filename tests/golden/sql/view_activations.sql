-- CURRENT
SELECT oncefence.view_activations.ordinal, oncefence.view_activations.view_id, v.revision, v.digest, r.revision AS replaced_revision
FROM oncefence.view_activations JOIN oncefence.binding_views AS v ON v.org_id = oncefence.view_activations.org_id AND v.view_id = oncefence.view_activations.view_id LEFT OUTER JOIN oncefence.binding_views AS r ON r.org_id = oncefence.view_activations.org_id AND r.view_id = oncefence.view_activations.replaces
WHERE oncefence.view_activations.org_id = :of_org AND oncefence.view_activations.installation = :of_installation AND oncefence.view_activations.name = :of_name ORDER BY oncefence.view_activations.ordinal DESC
 LIMIT :param_1;

-- ADD
INSERT INTO oncefence.view_activations (org_id, installation, name, ordinal, view_id, replaces, activated_by, note, activated_at) VALUES (:org_id, :installation, :name, :ordinal, :view_id::UUID, :replaces::UUID, :activated_by, :note, :activated_at);
