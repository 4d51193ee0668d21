// SPDX-License-Identifier: GPL-2.0-or-later
// The driver tells the core which NAPI polls the queue of a zero-copy socket
//
// A repair: without it a socket has no NAPI to poll busily, from the kernel on in which it learns of its NAPI that way.

@told@
identifier priv, queue, channel;
@@
stmmac_xdp_enable_pool(struct stmmac_priv *priv, struct xsk_buff_pool *pool, u16 queue)
{
<+...
napi_enable(&channel->rxtx_napi);
+netif_queue_set_napi(priv->dev, queue, NETDEV_QUEUE_TYPE_RX, &channel->rxtx_napi);
...+>
}

@untold@
identifier priv, queue, channel;
@@
stmmac_xdp_disable_pool(struct stmmac_priv *priv, u16 queue)
{
<+...
+netif_queue_set_napi(priv->dev, queue, NETDEV_QUEUE_TYPE_RX, NULL);
napi_disable(&channel->rxtx_napi);
...+>
}
