-- ADD
INSERT INTO oncefence.principal_bindings (org_id, binding_id, name, provider, kind, base_url, is_local, made_at, subject) VALUES (:org_id, :binding_id::UUID, :name, :provider, :kind, :base_url, :is_local, :made_at, :subject);

-- FIND
SELECT oncefence.principal_bindings.org_id, oncefence.principal_bindings.binding_id, oncefence.principal_bindings.name, oncefence.principal_bindings.provider, oncefence.principal_bindings.kind, oncefence.principal_bindings.base_url, oncefence.principal_bindings.is_local, oncefence.principal_bindings.made_at, oncefence.principal_bindings.subject
FROM oncefence.principal_bindings
WHERE oncefence.principal_bindings.org_id = :of_org AND oncefence.principal_bindings.name = :of_name AND oncefence.principal_bindings.subject IS NOT DISTINCT FROM :of_subject;

-- OF_NAME
SELECT oncefence.principal_bindings.kind, oncefence.principal_bindings.provider
FROM oncefence.principal_bindings
WHERE oncefence.principal_bindings.org_id = :of_org AND oncefence.principal_bindings.name = :of_name
 LIMIT :param_1;
