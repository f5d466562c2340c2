"""Informers, the stores that they fill, and the changes that a writer expects to see in them."""
