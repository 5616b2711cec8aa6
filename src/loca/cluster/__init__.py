"""Local models in shards, on one machine or many: the same numbers as without; Ray is an extra, loca[cluster]."""

import os

# Whoever reaches the ports of Ray may run anything: a token, which Ray makes and stores in the home folder, keeps out
# whoever does not know it. Ray reads this when it is loaded.
os.environ.setdefault("RAY_AUTH_MODE", "token")
