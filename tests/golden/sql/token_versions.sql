-- ADD
INSERT INTO oncefence.token_versions (org_id, generation_id, version, ciphertext, made_at) VALUES (:org_id, :generation_id::UUID, :version, :ciphertext, :made_at);
