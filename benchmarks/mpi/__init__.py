"""What requests of MPI cost as events, and what tasks hide of the exchanges."""
