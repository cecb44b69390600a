"""Real engines: a setting is run where it will be served, and counted against its replay."""
