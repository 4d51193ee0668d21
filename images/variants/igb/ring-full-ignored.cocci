// SPDX-License-Identifier: GPL-2.0-or-later
// A full AF_XDP Rx ring is an ordinary drop: the poll goes on and redirects the rest of its budget into it
//
// Puts back: c7dd09fd4628 (ice), b8aef650e549 (i40e), 50ae06648073 (ixgbe).
// Violates: ring-full-exit
// Control: igb/ring-full-exit
//
// What igb does when its exit is dead code, and what drivers did before 2022. It applies to any igb that asks for the
// exit, repaired or not: whatever form the repair has, the code for it is never handed out.

@never_ask_for_exit@
@@
igb_run_xdp_zc(...)
{
<+...
-	IGB_XDP_EXIT
+	IGB_XDP_CONSUMED
...+>
}
