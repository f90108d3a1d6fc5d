"""The pure core: state machines, keys, outcomes and rules; no I/O, no clock, no randomness."""
