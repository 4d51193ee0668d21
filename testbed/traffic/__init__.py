"""Frames in and out of a guest's wire.

:class:`testbed.traffic.wire.Wire` is the host's end of the wire; its ``scapy()`` makes it the interface of any scapy
script; :func:`testbed.traffic.frames.numbered_frames` makes the frames whose fate the guest's ledger follows. Nothing
is imported here: the process of a device model needs only the framing, and should start at once.
"""
