/* Two ends of TLS and an attacker between them, which passes on their bytes as the test says: so
 * many at a time, changed, or not at all; and which sees them all. */
#ifndef TESTS_CORE_TLS_LINE_H
#define TESTS_CORE_TLS_LINE_H

#include "core/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIALER, LISTENER };

/* What one end says, on its way to the other. */
struct wire {
	int from, to;  /* the middle's sockets */
	uint8_t *seen; /* all that this end has said */
	size_t bytes, room;
	size_t passed, limit; /* given on; no more than limit are */
	size_t flip;          /* this byte is changed; SIZE_MAX: none */
	uint8_t bits;         /* by these */
	bool is_cut;          /* after what is passed on comes the end */
};

struct line {
	struct tls *tls[2];
	int fd[2];
	struct wire wires[2]; /* of the dialer's words, of the listener's */
	bool is_up[2];
	int error[2]; /* of the handshake */
};

/* Both ends with their keys; nothing has been said. */
void line_open(struct line *line, const uint8_t *dialer_key, const uint8_t *listener_key);
void line_close(struct line *line);
/* Passes on what is there and may be, at most so many bytes each way. Returns how many. */
size_t line_pass(struct line *line, size_t most);
/* The handshake goes on, at most chunk bytes at a time, until nothing moves any more. True: both
 * are up. */
bool line_shake(struct line *line, size_t chunk);
/* Both are up, with one key. */
void line_up(struct line *line);
/* All of it goes into the stream of this end, passed on by the way; and what has come at this end.
 */
void line_say(struct line *line, int end, const void *bytes, size_t count);
ssize_t line_hear(struct line *line, int end, void *to, size_t bytes);
/* This end's socket is closed without a word; the other one gets to know when what may be passed on
 * has been. */
void line_cut(struct line *line, int end);

#endif
