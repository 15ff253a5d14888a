/* The inside of the control ring: its messages, its links, and what control*.c know of each other. All under
 * the ring's lock. */
#ifndef COLLECTIVES_CONTROL_CONTROL_INTERNAL_H
#define COLLECTIVES_CONTROL_CONTROL_INTERNAL_H

#include "collectives/control/control.h"
#include "collectives/control/deadlines.h"

#include <pthread.h>
#include <stdbool.h>

#define CONTROL_TAG     0x7e117a1eu
#define CONTROL_CALLS_MOST   16 /* of one message */
#define CONTROL_BEFORE  7  /* of which before the call that is slow */
#define CONTROL_QUEUE   16 /* messages that wait to be sent; the newest are dropped when it is full */
#define CONTROL_MISSING 100

enum control_kind { CONTROL_HELLO, CONTROL_CALLS, CONTROL_WHO, CONTROL_DEAD, CONTROL_FAILED,
		    CONTROL_LEAVING, CONTROL_WATCH, CONTROL_HERE };

/* All ranks lay it out alike: same library, same machine word order, checked when they joined. */
struct control_message {
	uint32_t kind, count;   /* count: of calls or ranks; WATCH: ranks to go                  */
	int32_t origin;         /* whose calls, question, failure                                */
	int32_t status, rank;   /* FAILED, DEAD                                                  */
	uint32_t is_common;     /* FAILED                                                        */
	uint64_t first;         /* sequence of calls[0]; WHO: the call; FAILED: failure.sequence  */
	uint64_t issued;        /* LEAVING: calls made                                           */
	union {
		struct noted calls[CONTROL_CALLS_MOST];
		int32_t ranks[CONTROL_MISSING];
		char text[ERROR_BYTES];
	};
};

struct control_link {
	struct control *control;
	int peer;                       /* -1: the other link leads to all that are left */
	struct tutti_conn *conn;        /* NULL: none                                    */
	bool is_up, is_sending;
	bool is_cut;                    /* its conn is to be closed, and another found   */
	bool is_later;                  /* not the neighbour that it began with          */
	bool is_awaited;                /* a sign of life is                             */
	uint64_t watched_ns, silent_ns; /* when WATCH was sent; how long awaited         */
	uint64_t told;                  /* of our own calls up to here, not included     */
	uint64_t answered;              /* with as many calls of our own                 */
	bool is_keeping;                /* kept: records of calls that we have yet to make */
	struct control_message kept;
	struct tutti_io in, out;
	struct control_message received, sending;
	struct control_message queue[CONTROL_QUEUE];
	uint32_t queue_at, queued;
};

/* What is known of a rank. */
struct control_known {
	bool is_gone, has_left;         /* has_left: after left_at calls                 */
	uint64_t left_at;
};

struct control {
	struct control_config config;
	struct control_known *known;    /* by rank                                       */
	pthread_mutex_t lock;
	void (*on_failure)(void *arg, const struct failure *failure);
	void (*wake)(void);
	void *arg;
	struct control_link links[CONTROL_LINKS];
	int link_count;
	struct tutti_done done;
	bool needs_helper;              /* to look at what is kept, or at what is left   */
	bool some_have_left;
	uint64_t slow_told, asked;      /* sequence + 1                                  */
	uint64_t slow_since_ns, slow_ns; /* of waits: the first and the latest look      */
	uint64_t ticked_ns;             /* when silence was last measured                */
	uint64_t answer_to;             /* WHO came back: sequence + 1                   */
	int32_t missing[CONTROL_MISSING];
	uint32_t missing_count;
	int dead;                       /* a rank that has died, or -1                   */
	uint64_t dead_ns;               /* when this rank heard of it                    */
	char death[ERROR_BYTES];
	bool has_failed;                /* FAILED is on its way: nothing else matters    */
	bool is_leaving;                /* LEAVING was said                              */
	bool is_delivered;              /* on_failure was called, once the lock was free       */
	struct failure decided;
	char message[ERROR_BYTES];
};

/* ring_link.c */
void control_post(struct control_link *link, const struct control_message *message);
/* What waited to be said before does not matter any more. */
void control_post_last(struct control_link *link, const struct control_message *message);
void control_listen(struct control_link *link);
/* Begins to send the next message that waits, unless one is being sent. */
void control_flush(struct control_link *link);
struct control_link *control_other(struct control_link *link); /* NULL: of two ranks */
/* The first failure stays, and all ranks are told. */
void control_decide(struct control *c, const struct failure *failure);

/* "Rank 3 (process 311 on box)". Returns text. */
const char *control_who(const struct control *c, int rank, char *text, size_t text_bytes);

/* ring_messages.c */
/* One pass over the endpoint; whether anything moved. */
bool control_pass(struct control *c);
/* Until nothing moves. Whoever has used the endpoint leaves it armed: another thread may sleep on it. */
void control_settle(struct control *c);
/* Unlocks, and hands out what was decided and sent before. */
void control_unlock(struct control *c);

/* ring_repair.c */
tutti_status control_connect(struct control_link *link); /* to link->peer */
/* Another neighbour for each link that was cut. Nothing of theirs may be on the done list. */
void control_repair(struct control *c);

/* ring_watch.c */
void control_watch(struct control *c); /* a wait lasts */
void control_take_watch(struct control_link *link, const struct control_message *message);
void control_measure_silence(struct control *c);  /* measures silence */

/* ring_calls.c */
void control_send_calls(struct control_link *link, uint64_t first, uint64_t last);
void control_take_calls(struct control_link *link, const struct control_message *message);
void control_compare_kept(struct control *c); /* again at what is kept */

#endif
