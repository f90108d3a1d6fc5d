-- ADD
INSERT INTO oncefence.runtime_work_bindings (org_id, work_binding_id, installation, capability, work_binding_digest, credential_hash, public_key, made_at) VALUES (:org_id, :work_binding_id::UUID, :installation, :capability, :work_binding_digest, :credential_hash, :public_key, :made_at);
