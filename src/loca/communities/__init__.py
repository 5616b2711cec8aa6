"""Embeddings become distances, distances become communities with weights to train and weights to answer."""
