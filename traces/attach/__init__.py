"""Drafters that are attached to a recording: run over its outputs, they draft from every start.

A drafter is one file here (or, where it is a network, in `traces.record.drafters`) and its line in
the list of `registry`. `run.attach` writes what it drafts into a folder of its own inside the
recording, which is read like any other trace.
"""
