"""Processes that run an engine which is a Python library; `simkit.engines.run.worker` asks them."""
