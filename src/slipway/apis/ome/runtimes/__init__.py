"""Selection of the runtime that serves a model, with the reasons that exclude each other runtime. Pure."""
