"""Properties that must hold for every byte string, as plain functions: hypothesis runs them in the suite, libFuzzer
(through atheris) with coverage feedback by `make fuzz`."""
