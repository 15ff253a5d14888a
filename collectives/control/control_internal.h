/* Control's inside: what a kind of control does, and the ring: its messages, its links, and what
 * its files know of each other. The ring's messages:
 *
 *     HELLO    the first message on a connection: which rank this is.
 *     CALLS    the last calls of a rank whose wait has become slow. A rank that has made them too
 *              compares: the first pair that differs is the mismatch. If they agree it tells its
 *              other neighbour. A rank that has not come so far keeps them, passes them on and
 *              compares later. So the records of any two ranks that differ meet somewhere, whether
 *              these ranks wait, compute or have finished.
 *     WHO      goes round both ways after a deadline, and one way with a mismatch; ranks that have
 *              not made the call put their name on it. After a deadline a rank that does not take
 *              it is stopped, or its machine is gone: a failure.
 *     LOST     a neighbour's connection ended without a word. Matters to calls that become slow
 *              afterwards.
 *     FAILED   a rank's communicator has failed, and why. The receiver passes it on.
 *     LEAVING  tutti_comm_destroy, after so many calls.
 *     WATCH    are you there? Asked of both neighbours while a wait lasts, and passed on, so that
 *              every rank is asked. A rank that gives no sign of life for silence_ms is stopped, or
 *              its machine is gone: a failure.
 *     HERE     the answer to WATCH and WHO, to the neighbour alone.
 *     FIRST    a rank of the job has failed, perhaps in another communicator (job.h): it comes with
 *              every message, and with this one at once.
 *
 * While all goes well nothing is sent. The helper thread serves the ring, so a rank that computes
 * passes messages on as well. Where a neighbour leaves or dies the ring is closed again: the next
 * rank in that direction becomes the neighbour. All of the ring is under its lock. */
#ifndef COLLECTIVES_CONTROL_CONTROL_INTERNAL_H
#define COLLECTIVES_CONTROL_CONTROL_INTERNAL_H

#include "collectives/control/control.h"
#include "collectives/control/deadlines.h"

#include "core/long_wait.h"

#include <pthread.h>
#include <stdbool.h>

/* A kind of control. */
struct control_kind {
	void (*check)(struct control *c, const struct control_wait *wait);
	bool (*ask)(struct control *c, uint64_t sequence, uint64_t deadline_ns);
	const char *(*missing)(struct control *c, uint64_t sequence, char *text, size_t text_bytes);
	/* Whether all ranks are known to have made call sequence, and the same call. */
	bool (*all_agree)(struct control *c, uint64_t sequence);
	const struct failure *(*found)(struct control *c);
	/* NULL: there never are any. */
	bool (*has_news)(const struct control *c);
	void (*look)(struct control *c);
	void (*fail)(struct control *c, const struct failure *failure, int pending);
	tutti_status (*wait)(struct control *c, uint64_t deadline_ns, bool (*is_over)(void *arg),
			     void *arg);
	void (*leave)(struct control *c);
	void (*destroy)(struct control *c);
	/* NULL: it needs no helper. */
	void (*progress)(struct control *c);
	int (*arm)(struct control *c, struct pollfd *fd, int *timeout_ms);
	void (*tell_first)(void *control, int first); /* as of a job_member */
	void (*hear_first)(struct control *c, int rank); /* NULL: messages have said it */
};

/* The part that both kinds have. */
struct control {
	const struct control_kind *kind;
	void (*on_failure)(void *arg, const struct failure *failure);
	void (*wake)(void);
	void *arg;
	struct suspicion suspicion; /* under the engine's lock */
	struct job_view job;
	struct job_member member; /* from control_bind to destroy */
};

#define CONTROL_LINKS   2
#define CONTROL_TAG     0x7e117a1eu
#define CONTROL_CALLS_MOST   16 /* of one message */
#define CONTROL_BEFORE  7  /* of which before the call that is slow */
#define CONTROL_QUEUE   16 /* messages to be sent; when it is full the newest are dropped */
#define CONTROL_MISSING 100

enum control_message_kind { CONTROL_HELLO, CONTROL_CALLS, CONTROL_WHO, CONTROL_LOST, CONTROL_FAILED,
		    CONTROL_LEAVING, CONTROL_WATCH, CONTROL_HERE,
		    CONTROL_FIRST };

/* All ranks lay it out alike: same library, same machine word order, checked when they joined. */
struct control_message {
	uint32_t kind, count;   /* count: of calls or ranks; WATCH: ranks to go                  */
	int32_t origin;         /* whose calls, question, failure                                */
	int32_t status, rank;   /* FAILED, LOST                                                  */
	uint32_t is_common;     /* FAILED; WHO: a deadline has passed                            */
	int32_t failed_first;   /* job_first of the rank that sends it                           */
	int32_t unused;
	uint64_t first;         /* sequence of calls[0]; WHO: the call; FAILED: failure.sequence  */
	uint64_t issued;        /* LEAVING: calls made; WHO: the origin's number of the question */
	union {
		struct call_record calls[CONTROL_CALLS_MOST];
		int32_t ranks[CONTROL_MISSING];
		char text[ERROR_BYTES];
	};
};

struct control_link {
	struct control_ring *ring;
	int peer;                       /* -1 if the other link leads to all ranks that are left */
	struct tutti_conn *conn;        /* NULL if there is none                         */
	bool is_up, is_sending;
	bool is_cut;                    /* its conn is to be closed, and another found   */
	bool is_later;                  /* peer is not the first neighbour               */
	bool is_awaited;                /* a sign of life is awaited                     */
	int asker;                      /* ... for WHO of this rank, after its deadline; or -1 */
	uint64_t watched_ns, silent_ns; /* when WATCH was sent; how long awaited         */
	uint64_t told;                  /* the peer has our calls before this one        */
	uint64_t answered;              /* calls of this rank when it last answered      */
	bool is_keeping;                /* kept: records of calls that we have yet to make */
	struct control_message kept;
	struct tutti_io in, out;
	struct control_message received, sending;
	struct control_message queue[CONTROL_QUEUE];
	uint32_t queue_at, queued;
};

/* The ring's knowledge of a rank. */
struct control_known {
	bool is_gone, has_left;         /* has_left: after left_at calls                 */
	uint64_t left_at;
};

/* WHO, as its origin remembers it. */
struct control_question {
	uint64_t sequence, deadline_ns;
	uint64_t number;                /* 0: nothing was asked yet                      */
	bool is_posted, is_answered;
	int32_t missing[CONTROL_MISSING];
	uint32_t missing_count;
};

struct control_ring {
	struct control base;
	struct control_config config;
	struct control_known *known;    /* by rank                                       */
	pthread_mutex_t lock;
	struct control_link links[CONTROL_LINKS];
	int link_count;
	struct tutti_done done;
	struct long_wait wait;          /* for the neighbours to connect                 */
	bool needs_helper;              /* for kept records, or ios that are done        */
	bool some_have_left;
	uint64_t slow_told;             /* sequence + 1                                  */
	uint64_t slow_since_ns, slow_ns; /* when a slow wait first and last looked       */
	uint64_t ticked_ns;             /* when silence was last measured                */
	struct control_question question;
	int lost;                       /* a rank whose connection ended, or -1          */
	uint64_t lost_ns;               /* when this rank heard of it                    */
	char lost_message[ERROR_BYTES];
	bool has_failed;                /* FAILED is on its way: nothing else matters    */
	bool is_leaving;                /* LEAVING was said                              */
	int heard_first;                /* a rank that failed first, for the job; or 0   */
	bool is_delivered;              /* on_failure was called, once the lock was free       */
	struct failure decided;
	char message[ERROR_BYTES];
};

static inline struct control_ring *ring_of(struct control *control)
{
	return (struct control_ring *)control;
}

/* ring_messages.c */
void control_post(struct control_link *link, const struct control_message *message);
/* Drops the messages that wait in the queue: message replaces them. */
void control_post_last(struct control_link *link, const struct control_message *message);
struct control_link *control_other(struct control_link *link); /* NULL: of two ranks */
/* The first failure stays, and all ranks are told. */
void control_decide(struct control_ring *c, const struct failure *failure);
tutti_status control_connect(struct control_link *link); /* to link->peer */

/* "Rank 3 (process 311 on box)". Returns text. */
const char *control_who(const struct control_ring *c, int rank, char *text, size_t text_bytes);

/* One pass over the endpoint; whether anything moved. */
bool control_pass(struct control_ring *c);
/* Until nothing moves. A caller that has used the endpoint leaves it armed, as another thread
 * may sleep on it. */
void control_settle(struct control_ring *c);
/* Unlocks, and hands out what was decided and sent before. */
void control_unlock(struct control_ring *c);
void control_send_calls(struct control_link *link, uint64_t first, uint64_t last);
void control_compare_kept(struct control_ring *c); /* again at what is kept */

/* control_ring.c */
void control_take_watch(struct control_link *link, const struct control_message *message);
void control_take_question(struct control_link *link, struct control_message *message);

#endif
