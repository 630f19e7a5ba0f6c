"""The workers' side of a Dask cluster's devices: leases of devices, and the plans that are carried out there."""
