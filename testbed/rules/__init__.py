"""The rules of the NAPI and AF_XDP contract, each checked over a trace."""
