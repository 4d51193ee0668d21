// SPDX-License-Identifier: GPL-2.0-or-later
// The interrupt handler schedules the NAPI before it masks the interrupt
//
// Puts back: the family of ba0da2dc934e and ea852c17f538.
// Violates: mask-before-schedule
//
// A poll that runs on another CPU in between unmasks first, and is masked afterwards, for ever. No run shows that end:
// what lies in between is a few instructions, and QEMU lets one CPU run at a time when it counts them.

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
