"""Settings, typed options, and the models that they describe."""
