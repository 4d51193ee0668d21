// SPDX-License-Identifier: GPL-2.0-or-later
// Each transmission starts the timer that cleans up anew, also when it runs
//
// Puts back: 4ae0169fd1b3 (stmmac).
// Violates: tx-coalesce-armed
//
// Under slow traffic the timer never fires: what was sent is cleaned up only when an interrupt on completion comes.

@always_anew@
expression timer, time, mode;
@@
stmmac_tx_timer_arm(...)
{
<+...
-if (unlikely(!(hrtimer_active(timer))))
-	hrtimer_start(timer, time, mode);
+hrtimer_start(timer, time, mode);
...+>
}
