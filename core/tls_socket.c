/* The socket of a connection, as OpenSSL sees it: a BIO that reads from the socket and writes into
 * a buffer of ours, which goes into the socket when OpenSSL is done. */
#include "core/tls_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int tls_socket_read(BIO *bio, char *to, int bytes)
{
	struct tls *t = openssl.BIO_get_data(bio);
	ssize_t n;

	openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
	do
		n = recv(t->fd, to, (size_t)bytes, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	t->is_short = n < bytes;
	t->is_empty = n < 0 && errno == EAGAIN;
	t->is_cut |= n == 0;
	if (t->is_empty)
		openssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
	else if (n < 0)
		t->lost = errno;
	return (int)n;
}

int tls_socket_write(BIO *bio, const char *from, int bytes)
{
	struct tls *t = openssl.BIO_get_data(bio);
	size_t room = tls_room(t->records) - TLS_RECORD_BYTES - t->out_end;

	openssl.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
	/* OpenSSL writes only alerts without being asked, and nothing after them. */
	if ((size_t)bytes > room)
		return -1;
	memcpy(t->out + t->out_end, from, (size_t)bytes);
	t->out_end += (size_t)bytes;
	return bytes;
}

/* Returns 0 when all of out is in the socket. The kernel says only once what happened to it. */
int tls_socket_flush(struct tls *t)
{
	while (t->out_at < t->out_end && !t->write_error) {
		ssize_t n = send(t->fd, t->out + t->out_at, t->out_end - t->out_at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0)
			t->out_at += (size_t)n;
		else if (errno == EAGAIN)
			return -1;
		else if (errno != EINTR)
			t->write_error = t->lost ? t->lost : errno;
	}
	if (!t->write_error)
		return 0;
	errno = t->write_error;
	return -1;
}
