"""The kinds of LLMKube as msgspec types. The CustomResourceDefinitions are generated from them."""
