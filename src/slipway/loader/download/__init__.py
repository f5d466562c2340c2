"""Downloads of a source into a directory, their verification, and reports on the downloaded files."""
