"""The BenchmarkJob: resolve, plan and status. Pure."""
