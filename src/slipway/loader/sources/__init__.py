"""The places that weights come from: each module opens one kind of URL and gives a ``Source``."""
