"""Workers of a Dask scheduler: who they are, what they have, and whether they can be trusted with what is asked.

A worker declares what it has when it starts, ``dask worker ADDRESS --resources "cores=2 kvm=1"``, and a job asks for
what it needs, so that Dask sends it where that is free.
"""
