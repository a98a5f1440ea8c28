"""Ablations: one variable changed at a time, the curve, and what it means (`diagnose ablate`)."""
