// SPDX-License-Identifier: GPL-2.0-or-later
// A repair: the counters of a queue stay when an AF_XDP socket comes or goes
//
// igb_txrx_ring_disable() sets a queue's counters to 0 each time its buffers are exchanged, and those of the interface
// are the sum over the queues: rx_packets and tx_packets go back. See docs/findings.md.

@counters_stay@
expression rx_ring, tx_ring;
@@
igb_txrx_ring_disable(...)
{
...
-memset(&rx_ring->rx_stats, 0, sizeof(rx_ring->rx_stats));
-memset(&tx_ring->tx_stats, 0, sizeof(tx_ring->tx_stats));
}
