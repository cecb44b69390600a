"""Statistics, tables and figures over traces and replays. No torch here."""
