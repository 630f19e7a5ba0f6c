"""The devices of a Dask cluster's workers, as the client sees them: they plan, and workers carry the plans out."""
