-- ADD
INSERT INTO oncefence.operators (operator_id, name, token_hash, roles, orgs, made_at, revoked_at) VALUES (:operator_id::UUID, :name, :token_hash, :roles, :orgs, :made_at, :revoked_at);

-- REVOKE
UPDATE oncefence.operators SET revoked_at=clock_timestamp() WHERE oncefence.operators.operator_id = :operator::UUID AND oncefence.operators.revoked_at IS NULL RETURNING oncefence.operators.revoked_at;
