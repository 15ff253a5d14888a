/* A fake libibverbs for tests: a shared object of the real one's name, whose queue pairs connect
 * the threads of one process. A program that is linked with it has these devices and no others.
 *
 * A thread of its own moves work requests and hands out completions, in an order that a seed
 * chooses. It is as strict as hardware: what a device refuses is refused, and what a device may
 * delay is delayed. What no correct program does (a completion queue that overruns, a message for
 * which no receive is posted, an object that is left open) is a violation: it is printed, and
 * counted.
 *
 *     devices.c  devices, ports, GIDs      memory.c  protection domains, registered memory
 *     queues.c   completion queues         pairs.c   queue pairs and their states
 *     posting.c  posted work requests      wire.c    the thread that moves them
 *     faults.c   what the test has ordered to go wrong
 *
 * There is RC alone, with SEND and RDMA WRITE; no READ, no atomics, no shared receive queue, no
 * memory window. A dma-buf is a descriptor that mmap takes, from its position on. All functions may be called by any
 * thread. */
#ifndef TESTS_VERBS_FAKE_VERBS_H
#define TESTS_VERBS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_DEVICES 4
#define FAKE_PORTS   2
#define FAKE_GIDS    6

struct fake_gid {
	enum ibv_gid_type type;
	uint8_t raw[16]; /* all 0: an entry that is empty */
};

struct fake_port_config {
	bool is_infiniband; /* its link layer; else Ethernet */
	enum ibv_port_state state;
	enum ibv_mtu mtu;
	uint16_t lid;
	uint8_t width, speed; /* as in ibv_port_attr */
	struct fake_gid gids[FAKE_GIDS];
};

struct fake_device_config {
	bool has_no_immediate; /* it calls itself iWARP, and refuses immediate data */
	bool has_no_dma_buf;   /* as soft-RoCE: EOPNOTSUPP */
	bool is_old;           /* no ibv_query_port of its own: the library's is called */
	uint32_t max_inline;
	int ports;
	struct fake_port_config port[FAKE_PORTS];
};

/* Devices fake_0, fake_1 and so on. delays: how long deliveries and completions are put off; 0 for
 * not at all. retry_ms: until a peer that does not answer is given up. */
struct fake_config {
	uint64_t seed;
	unsigned delays, retry_ms;
	int devices;
	struct fake_device_config device[FAKE_DEVICES];
};

/* One device with one port: RoCE with the GIDs that a real one has (v1 and v2 of the link, v1 and
 * v2 of 10.0.0.1), or InfiniBand. */
void fake_config_roce(struct fake_config *config, uint64_t seed);
void fake_config_infiniband(struct fake_config *config, uint64_t seed);
/* While no device is open. Ends all faults. */
void fake_start(const struct fake_config *config);

/* What is open now, and what has happened since fake_start. */
struct fake_counts {
	int contexts, domains, regions, channels, queues, pairs;
	long sends, writes, immediates, inlines; /* work requests that were moved */
	long bytes;
	long from_device, into_device; /* of them, those of dma-bufs */
	long not_ready; /* messages that found no receive posted */
	long violations;
};
struct fake_counts fake_count(void);
/* Nothing is open, and there were no violations; else it says so on stderr. */
bool fake_is_clean(void);

/* Faults. They last until fake_repair or fake_start. */
void fake_repair(void);

enum fake_call {
	FAKE_GET_DEVICE_LIST,
	FAKE_OPEN_DEVICE,
	FAKE_QUERY_DEVICE,
	FAKE_QUERY_PORT,
	FAKE_ALLOC_PD,
	FAKE_REG_MR, /* ibv_reg_dmabuf_mr, too */
	FAKE_CREATE_CHANNEL,
	FAKE_CREATE_CQ,
	FAKE_CREATE_QP,
	FAKE_MODIFY_QP,
	FAKE_POST_SEND,
	FAKE_POST_RECV,
	FAKE_POLL_CQ,
	FAKE_CALLS
};
/* All such calls fail with this errno value, but for the first so many. */
void fake_fail_call(enum fake_call call, long after, int error);
/* The next work request of this opcode but so many is not moved, and completes with status; its
 * queue pair breaks. */
void fake_fail_work(enum ibv_wr_opcode opcode, long after, enum ibv_wc_status status);
/* The next so many messages find no receive, though one is posted. */
void fake_refuse_receives(long messages);
/* A port that is not active answers nobody: requests from and to it are given up. */
void fake_set_port(int device, int port, enum ibv_port_state state);
/* The device is gone: all its queue pairs break, and all calls fail with EIO. */
void fake_remove_device(int device);
/* All queue pairs of the device that are connected break (IBV_EVENT_QP_FATAL). */
void fake_break_pairs(int device);
/* So many work requests are moved, and then none. */
void fake_move_only(long requests);
/* Nothing is moved; or no completion of this kind is handed out. */
void fake_hold_work(bool is_held);
void fake_hold_sent(bool is_held);
void fake_hold_received(bool is_held);
/* Waits until nothing moves any more: all that is not held has been moved and handed out. */
void fake_settle(void);

#endif
