"""Trees of draft tokens: how they grow, level by level, and the shapes that say which nodes do."""
