"""The work that touches the world: one request, one lookup, one sweep at a time."""
