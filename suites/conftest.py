"""Every run of the suites draws the same examples, on every machine."""

from hypothesis import settings

settings.register_profile("qcom", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("qcom")
