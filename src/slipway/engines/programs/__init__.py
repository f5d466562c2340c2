"""Programs that run models, with one file per program. Pure."""
