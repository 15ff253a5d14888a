/* What the files of the fake share. One lock guards all of it; the functions here are called with
 * it, but for those that say otherwise. */
#ifndef TESTS_VERBS_FAKE_FAKE_H
#define TESTS_VERBS_FAKE_FAKE_H

#include "tests/verbs/fake/fake_verbs.h"

#include <pthread.h>
#include <stddef.h>

#define FAKE_SGES       4
#define FAKE_INLINE     512
#define FAKE_WORK_MOST  4096 /* max_qp_wr */
#define FAKE_QUEUE_MOST 8192 /* max_cqe */
#define FAKE_QUEUES     64   /* completion queues that one channel has events of, at most */

struct fake_device {
	struct ibv_device base;
	struct fake_device_config config;
	int index;
	bool is_gone;
};

struct fake_context {
	struct verbs_context verbs; /* .context is what the program has */
	struct fake_device *device;
	int domains, regions, channels, queues, pairs;
};

struct fake_domain {
	struct ibv_pd base;
	int users;
};

struct fake_region {
	struct ibv_mr base;
	int access;
	uint8_t *view; /* of a dma-buf: where its bytes are; else NULL */
	size_t view_from, view_bytes;
	struct fake_region *next;
};

struct fake_channel {
	struct ibv_comp_channel base; /* its fd counts events */
	struct fake_queue *events[FAKE_QUEUES];
	int count;
	int users;
};

struct fake_completion {
	struct ibv_wc wc;
	struct fake_pair *pair;
	bool is_send;
	uint64_t number; /* of the work request in its queue: this one and those before are done */
};

struct fake_queue {
	struct ibv_cq base;
	struct fake_completion *entries; /* base.cqe of them, a ring */
	int first, count;
	bool is_armed, has_failed;
	unsigned unacked; /* events that the program took */
	int users;
};

struct fake_work {
	struct ibv_send_wr send; /* sg_list and next say nothing any more */
	struct ibv_recv_wr recv; /* likewise                              */
	struct ibv_sge sges[FAKE_SGES];
	size_t bytes;
	uint8_t inlined[FAKE_INLINE];
};

/* A ring of work requests. Those from done to next have been moved, and their slots are taken until
 * a completion behind them is polled; those from next to posted wait. */
struct fake_ring {
	struct fake_work *work;
	uint32_t most;
	uint64_t done, next, posted;
};

struct fake_pair {
	struct ibv_qp base;
	struct ibv_qp_cap cap;
	bool is_all_signaled;
	struct fake_pair *next;
	unsigned access;
	uint8_t port, sgid_index, rnr_retry, retry_cnt;
	enum ibv_mtu mtu;
	uint32_t peer_number, rq_psn, sq_psn;
	struct ibv_ah_attr path;
	struct fake_ring sends, recvs;

	/* Of the first send that waits. */
	struct {
		bool is_begun;
		uint32_t blocks, moved, stride, block_bytes;
		int refusals;      /* for want of a receive        */
		uint64_t gives_up; /* when the peer does not answer; 0: it does */
	} moving;
	uint64_t not_before; /* ns: it rests until then      */
	unsigned hold;       /* turns that it is left out    */

	/* Completions that are not handed out yet. */
	struct fake_completion *pending;
	uint32_t pending_most, pending_first, pending_count;
	int active; /* its place among those that have something to do; -1 */
};

struct fake {
	pthread_mutex_t lock;
	pthread_cond_t work, settled;
	struct fake_config config;
	struct fake_device devices[FAKE_DEVICES];
	uint64_t random;
	struct fake_pair *pairs, **active;
	int active_count, active_room;
	struct fake_region *regions;
	int views; /* regions that are of a dma-buf */
	uint32_t numbers, keys;
	struct fake_counts counts;
	pthread_t thread;
	bool has_thread, is_ending, is_settled, holds_sent, holds_received;
	long moves_left; /* negative: no bound */
	struct {
		bool is_set;
		long after;
		int error;
	} calls[FAKE_CALLS];
	struct {
		bool is_set;
		enum ibv_wr_opcode opcode;
		long after;
		enum ibv_wc_status status;
	} fail;
	long refusals;
};

extern struct fake fake;

/* faults.c */
void fake_lock(void);
void fake_unlock(void);
uint32_t fake_random(uint32_t below);
void fake_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* 0, or the errno value that this call fails with. */
int fake_call_error(enum fake_call call, const struct fake_device *device);

/* devices.c */
const struct fake_gid *fake_gid_at(const struct fake_device *device, int port, unsigned index);
bool fake_port_is_active(const struct fake_device *device, int port);

static inline struct fake_context *fake_context_of(struct ibv_context *context)
{
	return (struct fake_context *)((char *)context -
				       offsetof(struct fake_context, verbs.context));
}

static inline struct fake_device *fake_device_of(struct ibv_context *context)
{
	return fake_context_of(context)->device;
}

/* memory.c: the memory of sge may be used so; key is the lkey or the rkey. */
bool fake_is_allowed(const struct ibv_pd *pd, uint64_t at, size_t bytes, uint32_t key,
		     bool is_remote, int access);
/* Where the device finds the byte that the program calls at. */
uint8_t *fake_reach(uint64_t at, uint32_t key, bool is_remote);
bool fake_is_dma_buf(uint32_t key, bool is_remote); /* of this key */

/* queues.c */
void fake_queue_add(struct fake_queue *queue, const struct fake_completion *completion);
void fake_queue_forget(struct fake_queue *queue, const struct fake_pair *pair);
int fake_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wcs); /* without the lock */
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);      /* likewise */

/* pairs.c */
struct fake_pair *fake_pair_numbered(uint32_t number);
/* Flushes what waits. */
void fake_pair_break(struct fake_pair *pair);
/* One that completes later. */
void fake_pair_complete(struct fake_pair *pair, bool is_send, uint64_t number,
			enum ibv_wc_status status, enum ibv_wc_opcode opcode, size_t bytes);
/* The completion that was added last. */
struct fake_completion *fake_pair_last(struct fake_pair *pair);

/* posting.c */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad); /* unlocked */
int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		   struct ibv_recv_wr **bad); /* likewise */

static inline struct fake_work *fake_work_at(const struct fake_ring *ring, uint64_t number)
{
	return &ring->work[number % ring->most];
}

/* wire.c */
void fake_activate(struct fake_pair *pair);
void fake_deactivate(struct fake_pair *pair);
bool fake_wire_begin(void);
void fake_wire_end(void); /* without the lock */

#endif
