"""What the devices of a Dask cluster cost, along with bare `distributed`."""
