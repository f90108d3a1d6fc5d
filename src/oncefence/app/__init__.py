"""The program: its settings, its processes, its doors and its command line."""
