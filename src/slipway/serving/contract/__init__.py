"""The contract between the controller and the APIs."""
