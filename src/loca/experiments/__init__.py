"""Comparisons: models beside each other, under one protocol and on the same users."""
