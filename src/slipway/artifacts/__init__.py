"""Where weights come from and what they are: data and pure functions, no bytes are moved here."""
