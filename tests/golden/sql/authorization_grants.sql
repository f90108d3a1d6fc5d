-- ADD
INSERT INTO oncefence.authorization_grants (org_id, generation_id, rotation, state, suspect_version, open_refresh, failures, not_before, failure_class, changed_at) VALUES (:org_id, :generation_id::UUID, :rotation, :state, :suspect_version, :open_refresh::UUID, :failures, :not_before, :failure_class, :changed_at);

-- LOCK
SELECT oncefence.authorization_grants.org_id, oncefence.authorization_grants.generation_id, oncefence.authorization_grants.rotation, oncefence.authorization_grants.state, oncefence.authorization_grants.suspect_version, oncefence.authorization_grants.open_refresh, oncefence.authorization_grants.failures, oncefence.authorization_grants.not_before, oncefence.authorization_grants.failure_class, oncefence.authorization_grants.changed_at
FROM oncefence.authorization_grants
WHERE oncefence.authorization_grants.org_id = :of_org AND oncefence.authorization_grants.generation_id = :of_generation::UUID FOR UPDATE;

-- FOLLOW_REWRAP
UPDATE oncefence.authorization_grants SET suspect_version=:after WHERE oncefence.authorization_grants.org_id = :of_org AND oncefence.authorization_grants.generation_id = :of_generation::UUID AND oncefence.authorization_grants.suspect_version = :before;

-- OPEN
UPDATE oncefence.authorization_grants SET open_refresh=:refresh::UUID, changed_at=clock_timestamp() WHERE oncefence.authorization_grants.org_id = :of_org AND oncefence.authorization_grants.generation_id = :of_generation::UUID;

-- STAND
UPDATE oncefence.authorization_grants SET state=:to_state, suspect_version=:suspect, open_refresh=:refresh::UUID, failures=:failed, not_before=:until, failure_class=:why, changed_at=clock_timestamp() WHERE oncefence.authorization_grants.org_id = :of_org AND oncefence.authorization_grants.generation_id = :of_generation::UUID;
