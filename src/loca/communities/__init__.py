"""Communities of users: how they are found, and by what weights they train and answer.

- `finder.py`: the base classes of finders and of the communities that they find
- `kernel.py`: communities around anchor users, by the distance between embeddings
- `mixture.py`: communities that are the components of mixtures of multinomials
- `random_groups.py`: groups drawn at random
- `best_of.py`: the choice among these kinds on validation
- `memberships.py`: weights from memberships, for mixtures and random groups

What kernels need:

- `embeddings.py`: embedders of users
- `geometry.py`: distances, kernels, and bandwidths in units or as quantiles
- `anchors.py`: the ways to choose anchor users
- `coverage.py`: greedy coverage, with `common_bits_triton.py` on a GPU
- `clusters.py`: k-means

What mixtures need:

- `multinomial_mixture.py`: the estimator
- `em.py`: expectation maximisation
- `mixture_starts.py`: the starts, compared on held-out items
- `mixture_memory.py`: what a fit takes, and the device that it takes it on
- `components.py`: the choice of the number of components
- `sparse_rows.py`: rows of CSR matrices
"""
