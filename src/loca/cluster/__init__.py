"""Local models in shards, on one machine or many: the same numbers as without; Ray is an extra, loca[cluster]."""
