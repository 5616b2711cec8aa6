"""Linear models, stored as their largest differences to one reference model."""
