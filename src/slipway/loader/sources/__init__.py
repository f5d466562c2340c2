"""Sources of weights: each module opens one kind of URL and returns a ``Source``."""
