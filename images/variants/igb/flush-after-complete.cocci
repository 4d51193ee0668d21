// SPDX-License-Identifier: GPL-2.0-or-later
// Redirected frames are flushed at the very end of the poll, after napi_complete_done()
//
// Puts back: the family of 2ccce20d51fa.
// Violates: flush-before-complete
//
// Once completed, the NAPI may be polled on another CPU, while this one still has its redirects on per-CPU lists. Polls
// that do not complete flush before they return, as they must: only the order is wrong. All of them flush, since what
// was redirected is known in the Rx loop alone.

@not_in_the_loop@
identifier clean = {igb_finalize_xdp, igb_clean_rx_irq};
identifier flush = {xdp_do_flush, xdp_do_flush_map};
expression what;
@@
clean(...)
{
<+...
-if (what & IGB_XDP_REDIR)
-	flush();
...+>
}

@as_the_last_thing@
identifier not_in_the_loop.flush;
@@
igb_poll(...)
{
<+...
+flush();
return ...;
...+>
}
