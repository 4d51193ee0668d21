// SPDX-License-Identifier: GPL-2.0-or-later
// The obvious repair, which corrupts data: return the exit code at once and leave the refused descriptor in place
//
// Violates: chunk-single-owner
// Control: igb/ring-full-exit
//
// It ends the poll as it should, and looks perfect to whoever counts failed redirects. But from kernel 6.8 on the core
// has freed the refused buffer, and the driver keeps it in its ring: the chunk is posted a second time while its frame
// still waits, is overwritten, delivered twice and returned twice. See ring-full-exit for the repair that holds.

@exit_at_once@
identifier result;
@@
igb_run_xdp_zc(...)
{
<+...
-	result = IGB_XDP_EXIT;
+	return IGB_XDP_EXIT;
...+>
}
