-- ADD
INSERT INTO oncefence.audit (org_id, audit_id, at, actor, act, subject_kind, subject_id, note) VALUES (:org_id, :audit_id, :at, :actor, :act, :subject_kind, :subject_id, :note);
