-- ADD
INSERT INTO oncefence.binding_generations (org_id, generation_id, binding_id, ordinal, state, wrapped_key, key_id, token_version, made_at) VALUES (:org_id, :generation_id::UUID, :binding_id::UUID, :ordinal, :state, :wrapped_key, :key_id, :token_version, :made_at);
