// SPDX-License-Identifier: GPL-2.0-or-later
// Rx and Tx of a queue share one vector and one NAPI, however many queues there are
//
// A repair: a socket that prefers busy polling polls one NAPI, that of its Rx queue, and gets no other wakeup. Where the
// Tx queue has a NAPI of its own, nobody polls that.

@paired@
identifier adapter;
@@
igb_set_flag_queue_pairs(struct igb_adapter *adapter, ...)
{
<+...
-adapter->flags &= ~IGB_FLAG_QUEUE_PAIRS;
+adapter->flags |= IGB_FLAG_QUEUE_PAIRS;
...+>
}
