/* The inside of the control ring: its messages, its links, and what control*.c know of each other. All under
 * the ring's lock. */
#ifndef COLLECTIVES_CONTROL_INTERNAL_H
#define COLLECTIVES_CONTROL_INTERNAL_H

#include "collectives/control.h"

#include <pthread.h>
#include <stdbool.h>

#define CONTROL_TAG     0x7e117a1eu
#define CONTROL_NOTES   16 /* of one message */
#define CONTROL_BEFORE  7  /* of which before the call that is slow */
#define CONTROL_QUEUE   16 /* messages that wait to be sent; the newest are dropped when it is full */
#define CONTROL_MISSING 100
#define CONTROL_LOOK_MS 50 /* how often what is kept is looked at */

enum control_kind { CONTROL_HELLO, CONTROL_NOTES_OF, CONTROL_WHO, CONTROL_DEAD, CONTROL_FAILED,
		    CONTROL_LEAVING };

/* All ranks lay it out alike: same library, same machine word order, checked when they joined. */
struct control_message {
	uint32_t kind, count;   /* count: of notes or ranks                                      */
	int32_t origin;         /* whose notes, question, failure                                */
	int32_t status, dead;   /* FAILED; DEAD                                                  */
	uint32_t unused;
	uint64_t first;         /* sequence of notes[0]; WHO: the call; FAILED: notice.sequence  */
	uint64_t issued;        /* LEAVING: calls made                                           */
	union {
		struct noted notes[CONTROL_NOTES];
		int32_t ranks[CONTROL_MISSING];
		char sentence[ERROR_BYTES];
	};
};

struct control_link {
	struct control *control;
	int peer;
	struct tutti_conn *conn;        /* NULL: gone                                    */
	bool is_up, is_sending;
	bool has_left;                  /* after left_at calls                           */
	uint64_t left_at;
	uint64_t told;                  /* of our own notes up to here, not included     */
	uint64_t answered;              /* with as many calls of our own                 */
	bool is_keeping;                /* kept: notes of calls that we have yet to make */
	struct control_message kept;
	struct tutti_io in, out;
	struct control_message received, sending;
	struct control_message queue[CONTROL_QUEUE];
	uint32_t queue_at, queued;
};

struct control {
	struct control_config config;
	pthread_mutex_t lock;
	void (*heed)(void *arg, const struct notice *notice);
	void (*wake)(void);
	void *arg;
	struct control_link links[CONTROL_LINKS];
	int link_count;
	struct tutti_done done;
	bool needs_helper;              /* to look at what is kept, or at what is left   */
	uint64_t slow_told, asked;      /* sequence + 1                                  */
	uint64_t answer_to;             /* WHO came back: sequence + 1                   */
	int32_t missing[CONTROL_MISSING];
	uint32_t missing_count;
	int dead;                       /* a rank that has died, or -1                   */
	char death[ERROR_BYTES];
	bool has_failed;                /* FAILED is on its way: nothing else matters    */
	bool is_leaving;                /* LEAVING was said                              */
	bool is_delivered;              /* heed was called, once the lock was free       */
	struct notice verdict;
	char sentence[ERROR_BYTES];
};

/* control_ring.c */
void control_post(struct control_link *link, const struct control_message *message);
/* What waited to be said before does not matter any more. */
void control_post_last(struct control_link *link, const struct control_message *message);
void control_listen(struct control_link *link);
/* One pass over the endpoint; whether anything moved. */
bool control_pass(struct control *c);
/* Until nothing moves. Whoever has used the endpoint leaves it armed: another thread may sleep on it. */
void control_settle(struct control *c);
/* Unlocks, and hands out what was decided and sent before. */
void control_unlock(struct control *c);
struct control_link *control_other(struct control_link *link); /* NULL: of two ranks */
/* The first verdict stays, and everybody is told. */
void control_decide(struct control *c, const struct notice *notice);

/* control_notes.c */
void control_send_notes(struct control_link *link, uint64_t first, uint64_t last);
void control_take_notes(struct control_link *link, const struct control_message *message);
void control_look(struct control *c); /* again at what is kept */

#endif
