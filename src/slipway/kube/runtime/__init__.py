"""The controller process: workers, work queue, leader election and health."""
