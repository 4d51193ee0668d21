"""Fuzzing: bytes become scenarios, the guest's code and the trace say which are new, the rules which are wrong."""
