/* Shared by tls.c and tls_context.c: tls.c calls the other. */
#ifndef CORE_TLS_INTERNAL_H
#define CORE_TLS_INTERNAL_H

#include "core/tls.h"
#include "core/tls_library.h"

/* A record on its way into the socket. */
struct tls_record {
	uint32_t bytes, end; /* of what is in it; where it ends in out */
};

struct tls {
	SSL *ssl;
	int fd;
	uint8_t key[TUTTI_KEY_BYTES]; /* until the handshake is over */
	bool is_up;                   /* the handshake is over */
	bool is_ending;               /* tls_end has been called */
	bool has_ended;               /* nothing more can be read: error says why, or is 0 */
	int error, write_error;       /* errno; write_error: nothing more can be written */
	char error_text[80];

	/* The state of the socket when OpenSSL last asked it for bytes. */
	bool is_empty; /* not now */
	bool is_short; /* less than it was asked for */
	bool is_cut;   /* the end: no more will come */
	int lost;      /* errno */

	int records; /* that out has room for */
	struct tls_record sealed[TLS_RECORDS];
	int first, count;        /* of those, what the socket has not taken */
	size_t out_at, out_end;  /* bytes of out that it has not taken */
	uint32_t until_rekey;    /* records */
	uint8_t *stage, *out; /* where a record's bytes are gathered; what goes into the socket */
	uint8_t room[];
};

/* In OpenSSL's words, what went wrong last; it has none for some of its errors. */
const char *tls_reason(void);
/* A new one's SSL object, ready for its handshake; NULL if there is no memory. */
SSL *tls_context_new_ssl(struct tls *tls, bool dials);
/* Returns 0 when all of out has gone into the socket, else errno, which the kernel tells only
 * once. */
int tls_socket_flush(struct tls *tls);

#define TLS_RECORD_ROOM (TLS_RECORD_BYTES + 22) /* sealed: header, type and tag */
#define TLS_MORE_ROOM   1024 /* for a change of keys, alerts, a handshake's messages */

/* Bytes of stage and out for so many records. */
static inline size_t tls_room(int records)
{
	return TLS_RECORD_BYTES + (size_t)records * TLS_RECORD_ROOM + TLS_MORE_ROOM;
}

#endif
