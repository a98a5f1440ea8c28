"""Ceilings: the rates that a GPU sustains, as recorded, as stored by a measurement, and measured on this machine."""
