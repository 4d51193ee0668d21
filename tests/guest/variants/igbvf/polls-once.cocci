// SPDX-License-Identifier: GPL-2.0-or-later
// For tests: a small driver whose change is in one of its files

@work@
@@
igbvf_poll(...)
{
	...
-	return work_done;
+	return !!work_done;
}
