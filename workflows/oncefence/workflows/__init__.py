"""Waiting: what Temporal owns. The store is the authority; a workflow's memory is a hint."""
