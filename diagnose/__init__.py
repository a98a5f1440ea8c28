"""diagnose: why a CUDA kernel is slow, in one command."""

__version__ = "0.1.0"
