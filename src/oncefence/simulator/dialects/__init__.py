"""The languages that providers speak, one module each, behind one protocol."""
