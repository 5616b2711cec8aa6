"""Properties are checked on the same examples every time, however busy the machine is."""

from hypothesis import settings

settings.register_profile("same_examples", deadline=None, derandomize=True)
settings.load_profile("same_examples")
