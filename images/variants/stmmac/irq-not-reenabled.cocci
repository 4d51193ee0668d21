// SPDX-License-Identifier: GPL-2.0-or-later
// The combined poll completes and leaves its interrupts masked
//
// Violates: unmask-after-complete
//
// Nothing but a timer of the driver's or a wakeup by user space polls the queue again.

@left_masked@
expression priv, address, channel;
@@
stmmac_napi_poll_rxtx(...)
{
<+...
-stmmac_enable_dma_irq(priv, address, channel, 1, 1);
...+>
}
