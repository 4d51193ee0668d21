// SPDX-License-Identifier: GPL-2.0-or-later
// The zero-copy Tx loop counts its packets down past zero, then compares what is left with the room it had
//
// Puts back: 3b7c13dfdcc2 (igb).
// Violates: full-poll-justified
//
// After the loop the unsigned count is the largest there is, never below the room: a poll that sent anything at all
// claims that there is more to send, and returns its whole budget for nothing. The next poll finds no packet, returns
// before the comparison, and ends: one poll too many for each that sends, no spin.

@counted_past_zero@
identifier sent, packets;
statement body;
@@
igb_xmit_zc(...)
{
<+...
for (;
-	sent < packets
+	packets-- > 0
	; sent++)
	body
...+>
}
