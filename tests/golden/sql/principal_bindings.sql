-- ADD
INSERT INTO oncefence.principal_bindings (org_id, binding_id, name, provider, kind, base_url, is_local, made_at) VALUES (:org_id, :binding_id::UUID, :name, :provider, :kind, :base_url, :is_local, :made_at);
