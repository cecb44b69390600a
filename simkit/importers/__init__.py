"""Other programs' files, as traces where they hold enough for one."""
