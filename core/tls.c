/* One connection. OpenSSL seals and opens records; its bytes go through buffers of ours into the
 * socket and out of it.
 *
 * It is only asked to seal when everything before has gone into the socket, so that there is always
 * room for what it makes and it never has to be asked a second time. A record counts as sent when
 * the kernel has all of it: half of one is worth nothing to the other end. */
#include "core/tls_internal.h"

#include "core/status.h"

#include <assert.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tutti_status tls_new(struct tls **tls, int fd, const uint8_t key[TUTTI_KEY_BYTES], bool dials,
		     int records)
{
	struct tls *t = malloc(sizeof *t + tls_room(records));

	assert(records >= 1 && records <= TLS_RECORDS);
	if (t) {
		memset(t, 0, sizeof *t);
		t->fd = fd;
		t->records = records;
		t->until_rekey = TLS_REKEY;
		t->stage = t->room;
		t->out = t->room + TLS_RECORD_BYTES;
		memcpy(t->key, key, sizeof t->key);
		t->ssl = tls_context_new_ssl(t, dials);
	}
	if (!t || !t->ssl) {
		tls_free(t);
		return fail(TUTTI_ERR_MEMORY, "no memory for a connection with TLS");
	}
	*tls = t;
	return TUTTI_OK;
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	openssl.SSL_free(t->ssl);
	sodium_memzero(t, sizeof *t + TLS_RECORD_BYTES); /* what is in out is sealed */
	free(t);
}

/* The bytes of those records that have gone since it was last asked. */
static size_t count_sent(struct tls *t)
{
	size_t bytes = 0;

	while (t->count > 0 && t->sealed[t->first].end <= t->out_at) {
		bytes += t->sealed[t->first++].bytes;
		t->count--;
	}
	if (t->out_at == t->out_end) {
		t->out_at = t->out_end = 0;
		t->first = 0;
	}
	return bytes;
}

/* OpenSSL keeps errors by thread, and some may come from the program's own calls. */
static void tls_prepare(struct tls *t)
{
	t->is_empty = false;
	if (openssl.ERR_peek_last_error())
		openssl.ERR_clear_error();
}

/* errno, or 0 if the other end has said that it is over. */
static int error_of(struct tls *t)
{
	bool is_over;

	if (t->is_empty)
		return EAGAIN;
	if (t->lost)
		return t->lost;
	snprintf(t->error_text, sizeof t->error_text, "%s", tls_reason());
	is_over = openssl.SSL_get_error(t->ssl, 0) == SSL_ERROR_ZERO_RETURN;
	openssl.ERR_clear_error();
	return is_over ? 0 : t->is_cut ? ECONNRESET : EBADMSG;
}

const char *tls_error_text(const struct tls *t)
{
	return t->error_text;
}

int tls_handshake(struct tls *t)
{
	int rc, error;

	tls_prepare(t);
	rc = openssl.SSL_do_handshake(t->ssl);
	error = rc == 1 ? 0 : error_of(t);
	if (tls_socket_flush(t) != 0 && (rc == 1 || error == EAGAIN))
		return -1;
	count_sent(t);
	/* Said goodbye before it was known. */
	if (rc != 1 && error == 0)
		error = ECONNRESET;
	/* The other end proves itself by the common key, and by nothing else. */
	if (rc == 1 && !openssl.SSL_session_reused(t->ssl))
		error = EBADMSG;
	t->is_up = error == 0;
	if (t->is_up)
		sodium_memzero(t->key, sizeof t->key);
	errno = error;
	return t->is_up ? 0 : -1;
}

bool tls_wants_write(const struct tls *t)
{
	return t->out_at < t->out_end;
}

/* A place in what is offered. */
struct tls_place {
	const struct iovec *iov;
	int count;
	size_t at; /* in iov[0] */
};

static bool skip_empty(struct tls_place *p)
{
	while (p->count > 0 && p->at == p->iov->iov_len) {
		p->iov++;
		p->count--;
		p->at = 0;
	}
	return p->count > 0;
}

/* To is where they are copied, or NULL. Returns how many there were. */
static size_t tls_take_bytes(struct tls_place *p, uint8_t *to, size_t bytes)
{
	size_t done = 0;

	while (done < bytes && skip_empty(p)) {
		size_t step = p->iov->iov_len - p->at;
		step = step < bytes - done ? step : bytes - done;
		if (to)
			memcpy(to + done, (const uint8_t *)p->iov->iov_base + p->at, step);
		p->at += step;
		done += step;
	}
	return done;
}

/* The bytes of the next record: where they are if they lie side by side, else gathered. */
static const uint8_t *next_record(struct tls *t, struct tls_place *p, size_t *bytes)
{
	const uint8_t *here = (const uint8_t *)p->iov->iov_base + p->at;
	size_t left = p->iov->iov_len - p->at;

	*bytes = left < TLS_RECORD_BYTES && p->count > 1 ? 0 : left;
	if (*bytes == 0) {
		*bytes = tls_take_bytes(p, t->stage, TLS_RECORD_BYTES);
		return t->stage;
	}
	if (*bytes > TLS_RECORD_BYTES)
		*bytes = TLS_RECORD_BYTES;
	tls_take_bytes(p, NULL, *bytes);
	return here;
}

/* As many records as there is room for. False, with errno: OpenSSL could not. */
static bool tls_seal(struct tls *t, struct tls_place *p)
{
	while (t->count < t->records && skip_empty(p)) {
		size_t bytes, done = 0;
		const uint8_t *from = next_record(t, p, &bytes);

		if (t->until_rekey-- == 0) {
			t->until_rekey = TLS_REKEY;
			openssl.SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
		}
		tls_prepare(t);
		if (openssl.SSL_write_ex(t->ssl, from, bytes, &done) != 1 || done != bytes) {
			error_of(t);
			errno = t->write_error = t->lost ? t->lost : EBADMSG;
			return false;
		}
		t->sealed[t->count++] = (struct tls_record){(uint32_t)bytes, (uint32_t)t->out_end};
	}
	return true;
}

ssize_t tls_send(struct tls *t, const struct iovec *iov, int count)
{
	struct tls_place p = {iov, count, 0};
	size_t sealed = 0, gone = 0, seen;
	int rc;

	assert(t->is_up && !t->is_ending);
	for (int i = 0; i < t->count; i++)
		sealed += t->sealed[t->first + i].bytes;
	seen = tls_take_bytes(&p, NULL, sealed);
	assert(seen == sealed); /* it offers again what it was not told of */
	for (;;) {
		rc = tls_socket_flush(t);
		gone += count_sent(t);
		if (rc != 0 || !skip_empty(&p))
			break;
		if (!tls_seal(t, &p)) {
			rc = -1;
			break;
		}
	}
	return gone > 0 || rc == 0 ? (ssize_t)gone : -1;
}

int tls_end(struct tls *t)
{
	if (tls_socket_flush(t) != 0)
		return -1;
	count_sent(t);
	if (t->is_up && !t->is_ending && !(t->has_ended && t->error))
		openssl.SSL_shutdown(t->ssl);
	t->is_ending = true;
	return tls_socket_flush(t);
}

/* False: errno says why, 0 is the end. */
static bool open_some(struct tls *t, int (*how)(SSL *, void *, size_t, size_t *), void *to,
		      size_t bytes, size_t *got)
{
	if (t->has_ended) {
		errno = t->error;
		return false;
	}
	tls_prepare(t);
	if (how(t->ssl, to, bytes, got) == 1)
		return true;
	errno = error_of(t);
	if (errno != EAGAIN) {
		t->has_ended = true;
		t->error = errno;
	}
	return false;
}

ssize_t tls_recv(struct tls *t, const struct iovec *iov, int count)
{
	size_t all = 0;

	assert(t->is_up);
	t->is_short = false;
	for (int i = 0; i < count; i++) {
		for (size_t at = 0, got; at < iov[i].iov_len; at += got, all += got) {
			/* The last read of the socket emptied it. */
			if (all > 0 && t->is_short && !openssl.SSL_has_pending(t->ssl))
				return (ssize_t)all;
			if (!open_some(t, openssl.SSL_read_ex, (char *)iov[i].iov_base + at,
				       iov[i].iov_len - at, &got))
				return all > 0 ? (ssize_t)all : errno == 0 ? 0 : -1;
		}
	}
	return (ssize_t)all;
}

bool tls_has_unread(struct tls *t)
{
	uint8_t byte;
	size_t got;

	return t->is_up && open_some(t, openssl.SSL_peek_ex, &byte, 1, &got);
}

bool tls_may_have_more(const struct tls *t)
{
	return t->is_up && (t->has_ended ||
			    (!t->is_empty && (!t->is_short || openssl.SSL_has_pending(t->ssl))));
}
