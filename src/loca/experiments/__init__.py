"""Protocols, comparisons, settings and the demonstration: everything that puts models beside each other."""
