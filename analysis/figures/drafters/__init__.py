"""The drafters of one recording, side by side."""
