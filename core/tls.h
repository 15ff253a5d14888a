/* TLS 1.3 over a socket whose two ends know a common key: what goes through it can be neither read
 * nor changed on its way, nor by an attacker who learns the key later. No certificates, no tickets,
 * no early data. By OpenSSL, which is looked for when it is first needed. Nothing
 * here blocks, and nothing is allocated once the handshake is over. */
#ifndef CORE_TLS_H
#define CORE_TLS_H

#include <tutti/transport.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* A stream that breaks loses at most so many bytes before its end. */
#define TLS_RECORD_BYTES 16384u
#define TLS_RECORDS      4      /* that are read or written in one system call, at the most */
#define TLS_REKEY        (1u << 20) /* records of one key: RFC 8446, 5.5 allows 2^24.5 */

struct tls;

/* UNSUPPORTED with a message: this process has no TLS. From any thread, as often as you like. */
tutti_status tls_load(void);

/* The socket is non-blocking, connected, and remains the caller's. One of the ends dials, the other
 * does not; the key (which is copied) must be of this connection alone. records: 1 to TLS_RECORDS;
 * 1 also gives memory back while nothing moves, for a caller with many connections that says
 * little. After tls_load alone. MEMORY. */
tutti_status tls_new(struct tls **tls, int fd, const uint8_t key[TUTTI_KEY_BYTES], bool dials,
		     int records);
void tls_free(struct tls *tls); /* NULL is fine */

/* As send and recv of a non-blocking socket: -1 and errno when nothing could be done. EAGAIN: the
 * socket is full, or empty. EBADMSG: what came is not what the other end sent, or that had another
 * key. ECONNRESET also when the stream ends and the other end has not said so. Once an error,
 * always the same one. */

/* Returns 0 when it is done, and both ends have shown that they know the key. To be called again
 * whenever the socket lets something through, in the direction in which that was awaited. */
int tls_handshake(struct tls *tls);
bool tls_wants_write(const struct tls *tls); /* of tls_handshake and tls_end: the socket was full */
/* Bytes that the kernel has now as whole records, the first so many of iov. A caller that was told
 * less than it offered offers the rest again, and may add to its end. */
ssize_t tls_send(struct tls *tls, const struct iovec *iov, int count);
/* Returns 0 when the other end has said that it will send no more; less than was asked for when
 * there is no more now. */
ssize_t tls_recv(struct tls *tls, const struct iovec *iov, int count);
/* Whether tls_recv would give a byte. */
bool tls_has_unread(struct tls *tls);
/* The last tls_recv may have left something that the socket does not tell of: bytes, or the end. */
bool tls_may_have_more(const struct tls *tls);
/* This end will send no more; the other one gets to know when all before it has gone. Returns 0
 * when it is in flight. */
int tls_end(struct tls *tls);
/* In OpenSSL's words, what EBADMSG was about. */
const char *tls_error_text(const struct tls *tls);

#endif
