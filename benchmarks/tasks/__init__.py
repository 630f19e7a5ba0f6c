"""What a host task costs, along with Dask and OpenMP in C on the same graphs."""
