"""The kinds of OME as msgspec types. The CustomResourceDefinitions are generated from them."""
