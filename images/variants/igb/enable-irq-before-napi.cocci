// SPDX-License-Identifier: GPL-2.0-or-later
// The interrupts are enabled before NAPI when the interface comes up
//
// Puts back: many fixes of 2022 to 2026.
// Violates: no-lost-event
//
// An interrupt between the two finds NAPI disabled and schedules nothing; nor does enabling NAPI. What it stood for
// waits until the next interrupt.
//
// The scenario jumbo shows it: when the MTU changes, the link's interrupt falls into the window.

@interrupts_first@
identifier up = {igb_up, __igb_open};
identifier adapter;
@@
up(...)
{
...
clear_bit(__IGB_DOWN, &adapter->state);
+igb_irq_enable(adapter);
...
-igb_irq_enable(adapter);
...
}
