"""The HTTP service and the explorer of communities; an extra: pip install 'loca[serve]'."""
