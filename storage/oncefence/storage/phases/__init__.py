"""One file, one transaction; nothing else opens one."""
