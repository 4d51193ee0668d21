"""QEMU's virtio-net over PCI, and virtio_net: a driver unlike Intel's."""

from testbed.nic import Nic

__all__ = ["NIC"]

NIC = Nic(
    name="virtio-net",
    about="virtio 1.0 over PCI, QEMU's own model; AF_XDP zero copy from kernel 6.13 on",
    # Only a device that sits behind the platform's DMA lets the driver map what a socket's pool needs.
    device={
        "driver": "virtio-net-pci",
        "romfile": "",
        "disable-legacy": True,
        "iommu_platform": True,
        "rx_queue_size": 1024,  # the most there is; Tx has 256
        # Work begins inside the guest's notification, and frames leave at a tick of the virtual clock.
        "ioeventfd": False,
        "tx": "timer",
    },
    driver="virtio_net",
    modules=("virtio_pci", "virtio_net"),
    since={"copy": (0, 0), "native_xdp": (5, 10), "generic_xdp": (0, 0), "zero_copy": (6, 13)},
)
