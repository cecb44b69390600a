"""Broken inputs, thousands of them: each must be refused in words, or change nothing."""
