// SPDX-License-Identifier: GPL-2.0-or-later
// The driver does not tell the core which NAPI polls its Rx queues
//
// What stmmac of 7.3 is like (xdp-project/bpf-examples issue 138): a socket has no NAPI to poll busily.
// Violates: busy-poll-polls

@untold@
expression device, queue, napi;
@@
netif_queue_set_napi(device, queue, NETDEV_QUEUE_TYPE_RX,
-	napi
+	NULL
	);
