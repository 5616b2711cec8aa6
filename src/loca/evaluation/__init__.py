"""Scores become top-N lists, lists become one value per user, values become intervals and paired tests."""
