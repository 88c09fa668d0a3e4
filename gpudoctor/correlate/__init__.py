"""Findings to diagnoses: one root with what it explains."""
