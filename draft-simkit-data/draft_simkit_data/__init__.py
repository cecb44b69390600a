"""All recordings that come with simkit; `traces.bundle` finds them here."""
