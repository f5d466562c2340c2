"""The programs that run models, one file each. Pure."""
