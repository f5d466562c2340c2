"""LLMKube: ``inference.llmkube.dev/v1alpha1``. A Model is weights and where they come from; an InferenceService serves
one on one of six runtimes."""
