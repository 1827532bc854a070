"""A hardware conformance suite for the Adreno 630 GPU, with a virtual A630 to run it on."""

__version__ = "0.1.0"

pytest_plugins = ("pytest_qcom.plugin",)
"""For ``-p pytest_qcom`` where the entry point of that name is not installed: it then names this package."""
