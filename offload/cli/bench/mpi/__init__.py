"""``mpiexec -n P offload bench mpi``: what requests of MPI cost as events, and what they hide."""
