"""Selection of the runtime that serves a model, and the reasons why runtimes do not fit. Pure."""
