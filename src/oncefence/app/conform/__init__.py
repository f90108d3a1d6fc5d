"""`oncefence conform`: a pack held against a provider that breaks on command."""
