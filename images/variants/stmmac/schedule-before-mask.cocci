// SPDX-License-Identifier: GPL-2.0-or-later
// The interrupt handler schedules the NAPI before it masks the interrupt
//
// Puts back: the family of ba0da2dc934e and ea852c17f538.
// Violates: no-lost-event
//
// A poll that runs on another CPU in between unmasks first, and is masked afterwards, for ever.

@schedule_first@
identifier napi, flags;
expression lock, priv, address, channel, rx, tx;
@@
stmmac_napi_check(...)
{
<+...
if (napi_schedule_prep(napi)) {
+	__napi_schedule(napi);
	spin_lock_irqsave(lock, flags);
	stmmac_disable_dma_irq(priv, address, channel, rx, tx);
	spin_unlock_irqrestore(lock, flags);
-	__napi_schedule(napi);
}
...+>
}
