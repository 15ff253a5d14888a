/* Instead of tls.c, where OpenSSL's headers were missing when this was built. */
#include "core/tls.h"

#include "core/status.h"

#include <errno.h>

tutti_status tls_load(void)
{
	return fail(
		TUTTI_ERR_UNSUPPORTED,
		"TUTTI_TLS=1, but this Tutti was built without OpenSSL: build it where Debian's "
		"libssl-dev is installed, or unset TUTTI_TLS");
}

tutti_status tls_new(struct tls **tls, int fd, const uint8_t key[TUTTI_KEY_BYTES], bool dials,
		     int records)
{
	(void)tls, (void)fd, (void)key, (void)dials, (void)records;
	return tls_load();
}

/* Without TLS there is no struct tls, so these are never called. */

void tls_free(struct tls *tls)
{
	(void)tls;
}

static int nothing(const void *tls)
{
	(void)tls;
	errno = ENOSYS;
	return -1;
}

int tls_handshake(struct tls *tls)
{
	return nothing(tls);
}

bool tls_wants_write(const struct tls *tls)
{
	(void)tls;
	return false;
}

ssize_t tls_send(struct tls *tls, const struct iovec *iov, int count)
{
	(void)iov, (void)count;
	return nothing(tls);
}

ssize_t tls_recv(struct tls *tls, const struct iovec *iov, int count)
{
	(void)iov, (void)count;
	return nothing(tls);
}

bool tls_has_unread(struct tls *tls)
{
	(void)tls;
	return false;
}

bool tls_may_have_more(const struct tls *tls)
{
	(void)tls;
	return false;
}

int tls_end(struct tls *tls)
{
	return nothing(tls);
}

const char *tls_error_text(const struct tls *tls)
{
	(void)tls;
	return "there is no TLS";
}
