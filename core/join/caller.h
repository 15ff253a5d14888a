/* One connection of the server, before and after it has become a rank. Never blocks. */
#ifndef CORE_JOIN_CALLER_H
#define CORE_JOIN_CALLER_H

#include "core/admission.h"
#include "core/auth.h"
#include "core/tls.h"
#include "core/join/frame.h"
#include "core/join/meeting.h"

enum caller_stage {
	CALLER_HELLO,           /* pending: auth's hello is awaited        */
	CALLER_PROOF,           /* pending: auth's proof is awaited        */
	CALLER_HANDSHAKE,           /* proved; TLS is in flight                */
	CALLER_NAME,            /* proved; its HELLO frame is awaited      */
	CALLER_HEAD,            /* a rank: a frame's header is awaited     */
	CALLER_BODY,            /* a rank: its record is awaited           */
	CALLER_TOLD,            /* told of a failure: what it says is thrown away until it closes */
};

struct caller {
	int fd, rank;                       /* rank is -1 until it is known                    */
	enum caller_stage stage;
	struct auth auth;
	bool has_tls;                       /* it says that its job has                        */
	bool is_own;                        /* this process's: it needs no TLS                 */
	struct tls *tls;                    /* NULL: it speaks in clear                        */
	uint8_t in[AUTH_HELLO_BYTES], *into;
	size_t need, have;
	uint8_t out[AUTH_ANSWER_BYTES];     /* the header, then a body that the server owns   */
	const uint8_t *body;
	size_t out_bytes, body_bytes, sent;
	bool said_bye, is_closed;           /* closed: to be freed                             */
	int denied;                         /* errno of a call that this process may not make  */
	struct admission_entry pending;     /* until it has said which rank it is              */
	uint64_t bye_deadline_ns;
	struct caller *next_rank;           /* in host's list                                  */
};

/* The server, as a caller sees it. */
struct host {
	struct meeting meeting;
	uint8_t key[TUTTI_KEY_BYTES];
	bool is_welcomed;                   /* all have joined, and were told so               */
	bool round_closed;                  /* set by a caller: its record was the last        */
	struct caller *ranks;               /* the callers that have joined                    */
};

struct caller *caller_new(int fd);
/* Leaves the meeting, closes, frees. */
void caller_free(struct caller *caller, struct host *host);
static inline bool caller_is_pending(const struct caller *caller)
{
	return caller->stage < CALLER_HEAD;
}
/* The caller knows the job's key; it may not have said its rank yet. */
static inline bool caller_has_proved(const struct caller *caller)
{
	return caller->stage >= CALLER_HANDSHAKE;
}
/* Proved, named, and not told of a failure. */
static inline bool caller_is_rank(const struct caller *caller)
{
	return caller->stage == CALLER_HEAD || caller->stage == CALLER_BODY;
}
static inline bool caller_is_sending(const struct caller *caller)
{
	return caller->sent < caller->out_bytes + caller->body_bytes;
}
/* Moves what can be moved in either direction. */
void caller_read(struct caller *caller, struct host *host);
void caller_write(struct caller *caller);
/* Queues a frame; body is not copied. Only while nothing is being sent. */
void caller_send(struct caller *caller, struct frame head, const uint8_t *body);
/* The meeting has failed: why, and nothing after it. */
void caller_tell(struct caller *caller, const struct meeting *meeting);

#endif
