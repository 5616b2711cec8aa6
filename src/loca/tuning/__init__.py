"""Search spaces and the search for good hyperparameters."""
