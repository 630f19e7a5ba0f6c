"""A recorded region, whole: how it is recorded, planned, captured, replayed, and given to Dask."""
