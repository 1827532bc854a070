"""The suites test the plugin itself by running pytest inside pytest."""

pytest_plugins = ["pytester"]
