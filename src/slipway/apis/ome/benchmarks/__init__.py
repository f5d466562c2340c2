"""BenchmarkJobs: resolution, plan of the Job, and status. Pure."""
