/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What host and guest say to each other, and what a trace is made of. The Python side declares the same layouts in
 * testbed/scenario/program.py, testbed/trace/events.py and testbed/guest/channel.py; tests/unit/test_protocol.py
 * compiles this header and compares. All numbers are little-endian.
 */
#ifndef TESTBED_PROTOCOL_H
#define TESTBED_PROTOCOL_H

#ifndef __bpf__
#include <linux/types.h>
#endif

#define TB_MAGIC 0x44454254u /* "TBED" */
#define TB_VERSION 1
#define TB_TRAILER_MAGIC 0x54424f46u /* "TBOF" */
#define TB_ETHERTYPE 0x88b5 /* IEEE 802 local experimental: our numbered frames */
#define TB_MAX_CHUNKS 65536
#define TB_MAX_IRQS 1024

#define TB_MESSAGE_PORT 0xe9 /* QEMU's isa-debugcon: a byte written here reaches the host before the next instruction */
#define TB_STOP_PORT 0x505   /* QEMU's pvpanic: writing 1 stops the machine at this very instruction */
#define TB_MAX_STEPS 16384
#define TB_PAGE_BYTES 4096
#define TB_PAYLOAD_OFFSET 65536 /* in the mailbox: where the content of a file lies; a program that has files ends before */
#define TB_ARGUMENTS_PATH "/run/arguments"
#define TB_CLOCK_VARIABLE "TESTBED_CLOCK" /* in the agent's environment: "real" where QEMU does not count instructions */

/*
 * A message is this header and `count` records of `record_bytes` each. The guest writes its messages to TB_MESSAGE_PORT.
 * The host writes its one message, a program, into the agent's mailbox: pages of guest memory whose addresses the agent
 * told with TB_PAGES. It does so while the machine is stopped, so nothing that the host does has a time in the guest.
 * The trace is read from guest memory too, and can be read although the guest has died.
 */
struct tb_header {
	__u32 magic;
	__u16 version;
	__u16 type;
	__u32 count;
	__u32 record_bytes;
};

enum tb_message {
	TB_READY = 1,   /* guest: one tb_ready; the agent waits for a program */
	TB_PAGES = 2,   /* guest: physical addresses (__u64), see struct tb_ready; follows TB_READY */
	TB_PROGRAM = 3, /* host: tb_step records */
	TB_BARRIER = 4, /* guest: one tb_barrier, then the machine stops */
	TB_END = 5,     /* guest: one tb_end, then the machine stops */
	TB_FAILURE = 6, /* guest: bytes of text; the agent cannot go on */
	TB_STDOUT = 7,	/* guest: bytes that the user's program wrote */
	TB_STDERR = 8,
	TB_EXITED = 9,	/* guest: one tb_exited; the user's program has ended */
};

struct tb_ready {
	__u32 step_bytes;
	__u32 event_bytes;
	__u32 max_events;
	__u32 ifindex;
	__u32 mailbox_pages; /* of TB_PAGES, the first so many are the mailbox, */
	__u32 event_pages;   /* the next so many the table of events, and the last is where struct tb_position lies */
	__u8 mac[8];	     /* 6 used */
	char driver[32];
	char release[64];
};

/*
 * How far the table of events is written; more rows than the table has are lost. What follows is for a device model that
 * lives in the guest's time: the guest says what time it is, the model when it wants the machine stopped to act.
 */
struct tb_position {
	__u32 head;
	__u32 lost;
	__u64 now_ns; /* CLOCK_MONOTONIC, of the last event or stop */
	__u64 due_ns; /* the model's: 0, or the earliest time at which the machine is to be stopped for it */
	__u64 follows; /* the host's: 1 when there is such a model */
};

struct tb_barrier {
	__u32 step;
	__u32 action; /* of the program; TB_ACTION_DEVICE: none, but the device model is to act */
};

#define TB_ACTION_DEVICE 0xffffffffu

struct tb_end {
	__u32 steps_done;
	__s32 error; /* -errno of the step that ended the program, or 0 */
};

struct tb_exited {
	__s32 status; /* as wait(2) has it */
};

struct tb_step {
	__u16 kind;
	__u16 queue;
	__u32 count;
	__u64 a;
	__u64 b;
	__u64 c;
};

#define TB_ALL 0xffffffffu /* count: as many as there are */

enum tb_step_kind {
	TB_STEP_RINGS = 1,	/* a: Rx, b: Tx descriptors of the NIC's rings */
	TB_STEP_UMEM = 2,	/* count: chunks, a: chunk bytes, b: FILL entries, c: COMPLETION entries */
	TB_STEP_XDP_ATTACH = 3, /* a: enum xdp_action, b: enum tb_xdp_mode */
	TB_STEP_XDP_DETACH = 4,
	TB_STEP_BIND = 5,   /* queue; a: XDP_ZEROCOPY | XDP_COPY | XDP_USE_NEED_WAKEUP, b: RX, c: TX entries;
			       count: the budget with which the socket polls busily, 0: it does not */
	TB_STEP_UNBIND = 6,
	TB_STEP_FILL = 7,	/* count */
	TB_STEP_RX_DRAIN = 8,	/* count */
	TB_STEP_TX = 9,		/* count; a: frame bytes */
	TB_STEP_TX_KICK = 10,	/* sendto(), whatever need_wakeup says */
	TB_STEP_COMP_DRAIN = 11, /* count */
	TB_STEP_WAKEUP_RX = 12,	/* recvfrom() when FILL asks for it (need_wakeup), or the socket polls busily */
	TB_STEP_WAKEUP_TX = 13,	/* sendto() when TX asks for it (need_wakeup), or the socket polls busily */
	TB_STEP_SLEEP = 14,	/* a: microseconds */
	TB_STEP_SET = 15,	/* a: enum tb_setting, b: value */
	TB_STEP_SNAPSHOT_RINGS = 16,
	TB_STEP_HOST = 17, /* a barrier; a: the action's number; b: 1 when frames come */
	TB_STEP_MTU = 18,	/* a: bytes */
	TB_STEP_COALESCE = 19,	/* a: rx-usecs, b: tx-usecs; c: tx-frames and 1, 0: as they are;
				   count: 1 when the driver may be given less, down to nothing */
	TB_STEP_THREADED = 20,	/* a: 1 when NAPI is polled by threads of its own */
	TB_STEP_STACK_SEND = 21, /* count; a: frame bytes; numbered frames through the stack (AF_PACKET) */
	TB_STEP_LOG_LINE = 22,	/* a, b, c: up to 24 bytes of text for the kernel log */
	TB_STEP_CPUS = 23,	/* a: the CPU of the agent, b: the CPU of the NIC's interrupts */
	TB_STEP_INTERFACE = 24,	/* a: 1 up, 0 down */
	TB_STEP_NETCONSOLE = 25, /* a: 1 sends the kernel log over the NIC under test, 0 no longer */
	TB_STEP_FILE = 32,	/* count: bytes of the payload; a, b, c: path; queue: 1 to append to what is there */
	TB_STEP_EXEC = 33,	/* run what TB_ARGUMENTS_PATH says; a: 1 on the terminal, 0 with its output as messages */
};

#define TB_VERDICT_BY_FRAME 0x100u /* the XDP action is the frame's byte at TB_VERDICT_AT */
#define TB_VERDICT_AT 30	    /* the first byte of the filling */

enum tb_xdp_mode { TB_XDP_NATIVE = 0, TB_XDP_GENERIC = 1 };
enum tb_setting { TB_SET_NAPI_DEFER_HARD_IRQS = 1, TB_SET_GRO_FLUSH_TIMEOUT = 2,
	TB_SET_BYTE_QUEUE_LIMIT = 3 /* bytes in flight in each Tx queue */ };

/* What the observer says of a NAPI beside the numbers of an event. */
enum tb_flag {
	TB_FLAG_MISSED = 1, /* COMPLETE: when it was called, the NAPI had been scheduled again, and knew it (MISSED) */
	TB_FLAG_BUSY = 2,   /* POLL: in the middle of busy polling; its last poll, which ends it, has none */
};

/* One line of a trace. Its place in the trace is its order in time, over all CPUs. */
struct tb_event {
	__u64 time_ns; /* CLOCK_MONOTONIC of the guest */
	__u16 kind;
	__u8 cpu;
	__u8 flags; /* enum tb_flag */
	__u32 subject;
	__s32 a;
	__s32 b;
	__u64 c;
};

enum tb_event_kind {
	/* agent */
	TB_EV_STEP_BEGIN = 1,  /* subject: step, a: kind, b: queue, c: count or a */
	TB_EV_STEP_END = 2,    /* subject: step, a: 0 or -errno, c: frames, entries or bytes done */
	TB_EV_RX = 3,	       /* subject: chunk, a: bytes, b: 1 numbered and intact, 0 foreign, -1 damaged; c: sequence */
	TB_EV_FILL = 4,	       /* subject: chunk posted to FILL */
	TB_EV_TX = 5,	       /* subject: chunk submitted, a: bytes, c: sequence */
	TB_EV_COMPLETION = 6,  /* subject: chunk taken from COMPLETION */
	TB_EV_LEDGER = 7,      /* subject: chunk, a: enum tb_ledger, b: enum tb_owner it had, c: sequence */
	TB_EV_RING = 8,	       /* subject: enum tb_ring, a: producer, b: consumer, c: entries | need_wakeup << 32 */
	TB_EV_XDP_STATISTICS = 9, /* subject: field of struct xdp_statistics, c: value */
	TB_EV_OWNERS = 10,     /* subject: enum tb_owner, c: chunks */
	TB_EV_INTERFACE = 11,  /* subject: enum tb_counter, c: value */
	TB_EV_NAPI_ID = 12,    /* subject: what a socket that polls busily would poll (SO_INCOMING_NAPI_ID), 0: nothing */
	/* observer */
	TB_EV_IRQ = 32,	     /* subject: irq of a queue vector of the NIC under test */
	TB_EV_SCHEDULE = 33, /* subject: napi_id */
	TB_EV_POLL = 34,     /* subject: napi_id, a: work, b: budget; written when the poll returned */
	TB_EV_COMPLETE = 35, /* subject: napi_id, a: work_done, b: returned */
	TB_EV_WATCHDOG = 36, /* subject: napi_id; the gro_flush_timeout timer fired */
	TB_EV_REDIRECT = 37, /* subject: queue index in the map, a: errno (0 or negative), b: map type */
	TB_EV_XDP_EXCEPTION = 38, /* a: XDP action */
	TB_EV_FLUSH = 39,	  /* xdp_do_flush() */
	TB_EV_VERDICT = 40,	  /* subject: XDP action our program returned for a numbered frame, c: sequence */
	TB_EV_DISABLE = 41,	  /* subject: napi_id; napi_disable() was called */
	TB_EV_DISABLED = 42,	  /* subject: napi_id; and returned */
	TB_EV_ENABLE = 43,	  /* subject: napi_id; napi_enable() */
	TB_EV_STACK_RX = 44,	  /* a: bytes, b: 1 numbered; c: sequence; the driver handed a frame to the stack */
	TB_EV_STACK_TX = 45,	  /* a: bytes, b: result of the driver's transmit function (0: taken) */
	TB_EV_SKB_REAPED = 46,	  /* a: budget; napi_consume_skb(): a sent frame of the stack was cleaned up */
	TB_EV_XSK_TX_TAKEN = 47,  /* subject: queue, a: descriptors the driver took from TX, b: most it asked for */
	TB_EV_XSK_TX_DONE = 48,	  /* subject: queue, a: descriptors the driver reported sent */
	TB_EV_XSK_ALLOC = 49,	  /* subject: queue, a: buffers the driver got from the pool, b: asked for */
	TB_EV_NEED_WAKEUP = 50,	  /* subject: enum tb_ring (FILL or TX), a: 1 set, 0 cleared; b: queue */
	TB_EV_CARRIER = 51,	  /* a: 1 on, 0 off */
	/* host */
	TB_EV_LOG = 64, /* subject: line of the kernel log that is a splat */
};

enum tb_ring { TB_RING_FILL = 0, TB_RING_RX = 1, TB_RING_TX = 2, TB_RING_COMPLETION = 3 };

/* Where a chunk of the UMEM is, by what user space has seen. */
enum tb_owner {
	TB_OWNER_USER = 0,	 /* free, ours */
	TB_OWNER_FILL = 1,	 /* posted to FILL, not yet known to be taken */
	TB_OWNER_KERNEL = 2,	 /* taken from FILL or TX by the kernel */
	TB_OWNER_RX = 3,	 /* delivered; user space reads it */
	TB_OWNER_TX = 4,	 /* submitted to TX */
	TB_OWNER_COUNT = 5,
};

enum tb_ledger {
	TB_LEDGER_NOT_KERNELS = 1, /* delivered or completed although the kernel did not hold it */
	TB_LEDGER_TWICE = 2,	   /* delivered again before it went through FILL */
	TB_LEDGER_OUT_OF_ORDER = 3, /* a frame with a lower sequence number than one before it */
	TB_LEDGER_DUPLICATE = 4,   /* a frame with a sequence number already seen */
	TB_LEDGER_CHANGED = 5,	   /* the frame changed while user space held its chunk */
	TB_LEDGER_DAMAGED = 6,	   /* the frame arrived with a wrong checksum */
	TB_LEDGER_BAD_ADDRESS = 7, /* a descriptor that points outside the UMEM */
	TB_LEDGER_SURPLUS = 8,	   /* at quiescence FILL and HW hold more entries than chunks were given to them */
};

enum tb_counter { TB_COUNTER_RX_PACKETS = 0, TB_COUNTER_TX_PACKETS = 1, TB_COUNTER_RX_DROPPED = 2,
	TB_COUNTER_RX_MISSED = 3, TB_COUNTER_SOFTNET_DROPPED = 4 };

/* After the Ethernet header of a numbered frame, in the wire's byte order (big-endian); then filling up to `bytes`. */
struct tb_payload {
	__u32 magic;
	__u32 sequence;
	__u32 bytes;	/* of the whole frame without FCS */
	__u32 checksum; /* crc32 (zlib's) of the frame from its 14th byte on, with this field 0 */
};

/*
 * At the end of a frame of the user's own, in the same byte order. VLAN tags are not covered and not counted, because a
 * NIC may strip them.
 */
struct tb_trailer {
	__u32 magic; /* TB_TRAILER_MAGIC */
	__u32 sequence;
	__u32 bytes;	/* of the whole frame without FCS and tags, this included */
	__u32 checksum; /* crc32 of the frame from behind its EtherType on, with this field 0 */
	__u32 verdict;	/* the XDP action for TB_VERDICT_BY_FRAME */
};

#endif
