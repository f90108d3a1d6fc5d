"""The store: PostgreSQL owns every fact, and every write names the fence that permits it."""
