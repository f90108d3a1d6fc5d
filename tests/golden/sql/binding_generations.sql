-- ADD
INSERT INTO oncefence.binding_generations (org_id, generation_id, binding_id, ordinal, state, wrapped_key, key_id, token_version, made_at, flow, pack_grant, issuer, account, installation, scopes, base_url, retired_at, retired_because, identity_ordinal, client_id) VALUES (:org_id, :generation_id::UUID, :binding_id::UUID, :ordinal, :state, :wrapped_key, :key_id, :token_version, :made_at, :flow, :pack_grant, :issuer, :account, :installation, :scopes, :base_url, :retired_at, :retired_because, :identity_ordinal, :client_id);

-- LOCK_NEWEST
SELECT oncefence.binding_generations.org_id, oncefence.binding_generations.generation_id, oncefence.binding_generations.binding_id, oncefence.binding_generations.ordinal, oncefence.binding_generations.state, oncefence.binding_generations.wrapped_key, oncefence.binding_generations.key_id, oncefence.binding_generations.token_version, oncefence.binding_generations.made_at, oncefence.binding_generations.flow, oncefence.binding_generations.pack_grant, oncefence.binding_generations.issuer, oncefence.binding_generations.account, oncefence.binding_generations.installation, oncefence.binding_generations.scopes, oncefence.binding_generations.base_url, oncefence.binding_generations.retired_at, oncefence.binding_generations.retired_because, oncefence.binding_generations.identity_ordinal, oncefence.binding_generations.client_id
FROM oncefence.binding_generations
WHERE oncefence.binding_generations.org_id = :of_org AND oncefence.binding_generations.binding_id = :of_binding::UUID ORDER BY oncefence.binding_generations.ordinal DESC
 LIMIT :param_1 FOR UPDATE;

-- RETIRE
UPDATE oncefence.binding_generations SET state=:state, wrapped_key=CASE WHEN (:keeps_key IS true) THEN oncefence.binding_generations.wrapped_key END, retired_because=:why WHERE oncefence.binding_generations.org_id = :of_org AND oncefence.binding_generations.generation_id = :of_generation::UUID AND oncefence.binding_generations.state = :state_1;

-- ERASE_KEY
UPDATE oncefence.binding_generations SET wrapped_key=:wrapped_key WHERE oncefence.binding_generations.org_id = :of_org AND oncefence.binding_generations.generation_id = :of_generation::UUID AND oncefence.binding_generations.state = :state_1;

-- REWRAP
UPDATE oncefence.binding_generations SET wrapped_key=:wrapped_key, key_id=:key_id, token_version=:token_version WHERE oncefence.binding_generations.org_id = :of_org AND oncefence.binding_generations.generation_id = :of_generation::UUID;

-- LOCK_TOKENS
SELECT oncefence.binding_generations.org_id, oncefence.binding_generations.generation_id, oncefence.binding_generations.binding_id, oncefence.binding_generations.ordinal, oncefence.binding_generations.state, oncefence.binding_generations.wrapped_key, oncefence.binding_generations.key_id, oncefence.binding_generations.token_version, oncefence.binding_generations.made_at, oncefence.binding_generations.flow, oncefence.binding_generations.pack_grant, oncefence.binding_generations.issuer, oncefence.binding_generations.account, oncefence.binding_generations.installation, oncefence.binding_generations.scopes, oncefence.binding_generations.base_url, oncefence.binding_generations.retired_at, oncefence.binding_generations.retired_because, oncefence.binding_generations.identity_ordinal, oncefence.binding_generations.client_id
FROM oncefence.binding_generations
WHERE oncefence.binding_generations.org_id = :of_org AND oncefence.binding_generations.generation_id = :of_generation::UUID FOR NO KEY UPDATE;

-- GO_ON
UPDATE oncefence.binding_generations SET token_version=:to_version WHERE oncefence.binding_generations.org_id = :of_org AND oncefence.binding_generations.generation_id = :of_generation::UUID;
