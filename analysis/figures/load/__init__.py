"""Servers under load: throughput, latency, goodput, bursts."""
