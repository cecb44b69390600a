"""Statistics, tables and figures over traces and replays. No torch here."""

from analysis.gap import Gap, gap

__all__ = ["Gap", "gap"]
