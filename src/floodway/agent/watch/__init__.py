"""What others see of a running job: statuses, metrics, pushes."""
