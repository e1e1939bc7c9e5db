"""The typed run configuration: schema, durations, recipes and overrides."""
