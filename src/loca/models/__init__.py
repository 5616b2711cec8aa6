"""One recommender per file; each learns with user weights and scores any history."""
