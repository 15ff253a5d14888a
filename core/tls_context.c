/* Common to all connections: TLS 1.3 and nothing older, a key that both ends have and
 * fresh Diffie-Hellman keys besides, no certificates, no tickets, the cipher that is faster on
 * these CPUs. */
#include "core/tls_internal.h"

#include "core/status.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* OpenSSL sees the socket as a BIO that reads from it and writes into a buffer of ours, which goes
 * into the socket when OpenSSL is done. */

static int socket_read(BIO *bio, char *to, int bytes)
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

static int socket_write(BIO *bio, const char *from, int bytes)
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

#define WITH_AES    "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define WITHOUT_AES "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SSL_CTX *context; /* NULL: not loaded yet */
static BIO_METHOD *method;

/* The key is of one connection, so its name says nothing. */
static const char identity[] = "tutti";
/* TLS_AES_128_GCM_SHA256. Only its hash matters, which the other cipher has too. */
static const uint8_t cipher_of_key[2] = {0x13, 0x01};

/* Where instructions for AES are missing it is ten times slower than ChaCha20. */
static bool has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
	return (getauxval(AT_HWCAP) & HWCAP_AES) && (getauxval(AT_HWCAP) & HWCAP_PMULL);
#else
	return true;
#endif
}

/* The key in the form in which OpenSSL takes it; NULL if there is no memory. */
static SSL_SESSION *session_of(SSL *of)
{
	const struct tls *t = openssl.SSL_get_ex_data(of, 0);
	const SSL_CIPHER *cipher = openssl.SSL_CIPHER_find(of, cipher_of_key);
	SSL_SESSION *session = openssl.SSL_SESSION_new();

	if (session && cipher &&
	    openssl.SSL_SESSION_set1_master_key(session, t->key, sizeof t->key) &&
	    openssl.SSL_SESSION_set_cipher(session, cipher) &&
	    openssl.SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
		return session;
	openssl.SSL_SESSION_free(session);
	return NULL;
}

static int use_key(SSL *of, const EVP_MD *hash, const unsigned char **id, size_t *id_bytes,
		   SSL_SESSION **session)
{
	(void)hash; /* the second time that it is asked, the one that was chosen: SHA-256 */
	*id = (const unsigned char *)identity;
	*id_bytes = sizeof identity - 1;
	*session = session_of(of);
	return *session != NULL;
}

static int find_key(SSL *of, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
	*session = NULL;
	if (id_bytes != sizeof identity - 1 || memcmp(id, identity, id_bytes) != 0)
		return 1; /* another identity: there is none */
	*session = session_of(of);
	return *session != NULL;
}

static long tls_context_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio, (void)number, (void)pointer;
	return command == BIO_CTRL_FLUSH; /* tls.c does, when OpenSSL is done */
}

static bool make_method(void)
{
	method = openssl.BIO_meth_new(BIO_TYPE_SOURCE_SINK | 127, "tutti socket");
	return method && openssl.BIO_meth_set_read(method, socket_read) &&
	       openssl.BIO_meth_set_write(method, socket_write) &&
	       openssl.BIO_meth_set_ctrl(method, tls_context_control);
}

/* Whatever the system's openssl.cnf says. */
static bool make_context(SSL_CTX **made)
{
	SSL_CTX *c = openssl.SSL_CTX_new(openssl.TLS_method());

	if (!c)
		return false;
	*made = c;
	openssl.SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
					       SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
	/* Unless both ends say goodbye the stream was cut; and there are no middleboxes to please.
	 */
	openssl.SSL_CTX_clear_options(c, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_ALLOW_NO_DHE_KEX |
						 SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
	openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
	openssl.SSL_CTX_set_psk_use_session_callback(c, use_key);
	openssl.SSL_CTX_set_psk_find_session_callback(c, find_key);
	return openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
	       openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
	       openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_GROUPS_LIST, 0, (char[]){"X25519:P-256"}) ==
		       1 &&
	       openssl.SSL_CTX_set_ciphersuites(c, has_aes() ? WITH_AES : WITHOUT_AES) == 1 &&
	       openssl.SSL_CTX_set_num_tickets(c, 0) == 1;
}

const char *tls_reason(void)
{
	const char *reason = openssl.ERR_reason_error_string(openssl.ERR_peek_last_error());

	return reason ? reason : "no reason given";
}

static tutti_status tls_context_load(void)
{
	SSL_CTX *made = NULL;

	TRY(tls_library_load(&openssl));
	/* Threads of ours may still be talking while the process exits: nothing is freed then. */
	if (openssl.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) == 1 && make_method() &&
	    make_context(&made)) {
		context = made;
		return TUTTI_OK;
	}
	fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_TLS=1, but OpenSSL offers no TLS 1.3 here: %.200s",
	     tls_reason());
	openssl.ERR_clear_error();
	openssl.SSL_CTX_free(made);
	openssl.BIO_meth_free(method);
	method = NULL;
	return TUTTI_ERR_UNSUPPORTED;
}

tutti_status tls_load(void)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&lock);
	if (!context)
		status = tls_context_load();
	pthread_mutex_unlock(&lock);
	return status;
}

/* The socket's part of it is one BIO both ways, which the SSL object owns. */
SSL *tls_context_new_ssl(struct tls *t, bool dials)
{
	SSL *of = openssl.SSL_new(context);
	BIO *bio = of && openssl.SSL_set_ex_data(of, 0, t) ? openssl.BIO_new(method) : NULL;

	if (!bio) {
		openssl.SSL_free(of);
		openssl.ERR_clear_error();
		return NULL;
	}
	openssl.BIO_set_data(bio, t);
	openssl.BIO_set_init(bio, 1);
	openssl.SSL_set_bio(of, bio, bio);
	openssl.SSL_set_read_ahead(of, 1);
	if (t->records > 1)
		openssl.SSL_set_default_read_buffer_len(of, (size_t)t->records *
								    (TLS_RECORD_BYTES + 256));
	else
		openssl.SSL_ctrl(of, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);
	if (dials)
		openssl.SSL_set_connect_state(of);
	else
		openssl.SSL_set_accept_state(of);
	return of;
}
