// SPDX-License-Identifier: GPL-2.0-or-later
// For tests: the zero-copy Rx poll that meets a frame never returns

@hang@
identifier xdp;
@@
igb_run_xdp_zc(..., struct xdp_buff *xdp, ...)
{
+	for (;;)
+		cpu_relax();
	...
}
