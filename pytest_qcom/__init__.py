"""A hardware conformance suite for the Adreno 630 GPU, with a virtual A630 to run it on."""

__version__ = "0.1.0"
