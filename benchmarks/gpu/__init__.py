"""Measurements that need a GPU; each also runs, tiny, on a CPU."""
