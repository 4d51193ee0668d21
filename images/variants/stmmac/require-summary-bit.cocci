// SPDX-License-Identifier: GPL-2.0-or-later
// The interrupt handler looks at causes only when the summary of normal interrupts is set
//
// Puts back: 78b7920a0335 (stmmac).
// Violates: no-lost-event
//
// Both directions clear the summary, each with its own cause; a cause of the other direction that came before then goes
// unheard.

@received@
identifier status;
statement body;
@@
dwmac4_dma_interrupt(...)
{
<+...
-if (likely(status & DMA_CHAN_STATUS_RI))
+if ((status & DMA_CHAN_STATUS_NIS) && (status & DMA_CHAN_STATUS_RI))
	body
...+>
}

@sent@
identifier status;
statement body;
@@
dwmac4_dma_interrupt(...)
{
<+...
-if (likely(status & DMA_CHAN_STATUS_TI))
+if ((status & DMA_CHAN_STATUS_NIS) && (status & DMA_CHAN_STATUS_TI))
	body
...+>
}

@nothing_left_to_send@
identifier status;
statement body;
@@
dwmac4_dma_interrupt(...)
{
<+...
-if (unlikely(status & DMA_CHAN_STATUS_TBU))
+if ((status & DMA_CHAN_STATUS_NIS) && (status & DMA_CHAN_STATUS_TBU))
	body
...+>
}
