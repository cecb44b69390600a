"""All policies: by task and position, against the prophet, by cost and batch."""
