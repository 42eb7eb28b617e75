"""Measure settings on a real engine: workload, engine process, probes, comparison."""
