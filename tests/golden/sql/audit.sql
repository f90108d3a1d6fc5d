-- ADD
INSERT INTO oncefence.audit (org_id, audit_id, at, actor, act, subject_kind, subject_id, note, expected_version, sequence, previous, digest) VALUES (:org_id, :audit_id, :at, :actor, :act, :subject_kind, :subject_id, :note, :expected_version, :sequence, :previous, :digest);
