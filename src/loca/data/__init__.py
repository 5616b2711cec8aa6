"""Files, frames and matrices become Interactions, and Interactions become a Split."""
