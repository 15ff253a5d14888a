/* One connection. OpenSSL seals and opens records; its bytes go through buffers of ours into the
 * socket and out of it.
 *
 * It is only asked to seal when everything before has gone into the socket, so that there is always
 * room for what it makes and it never has to be asked a second time. A record counts as sent when
 * the kernel has all of it: half of one is worth nothing to the other end. */
#include "core/tls.h"

#include "core/dynamic_library.h"
#include "core/status.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#ifdef __aarch64__
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

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
	int first, count;       /* of those, what the socket has not taken */
	size_t out_at, out_end; /* bytes of out that it has not taken */
	uint32_t until_rekey;   /* records */
	uint8_t *stage, *out;   /* where a record's bytes are gathered; what goes into the socket */
	uint8_t room[];
};

#define TLS_RECORD_ROOM (TLS_RECORD_BYTES + 22) /* sealed: header, type and tag */
#define TLS_MORE_ROOM   1024 /* for a change of keys, alerts, a handshake's messages */

/* Bytes of stage and out for so many records. */
static inline size_t tls_room(int records)
{
	return TLS_RECORD_BYTES + (size_t)records * TLS_RECORD_ROOM + TLS_MORE_ROOM;
}

/* OpenSSL's libssl, loaded when TLS is first asked for: a program without TLS needs no OpenSSL. Its
 * version is that of the headers that this was built with. */

#define TLS_FUNCTIONS(X)                                                                           \
	X(OPENSSL_init_ssl)                                                                        \
	X(ERR_clear_error)                                                                         \
	X(ERR_peek_last_error)                                                                     \
	X(ERR_reason_error_string)                                                                 \
	X(BIO_meth_new)                                                                            \
	X(BIO_meth_free)                                                                           \
	X(BIO_meth_set_read)                                                                       \
	X(BIO_meth_set_write)                                                                      \
	X(BIO_meth_set_ctrl)                                                                       \
	X(BIO_new)                                                                                 \
	X(BIO_set_init)                                                                            \
	X(BIO_set_data)                                                                            \
	X(BIO_get_data)                                                                            \
	X(BIO_set_flags)                                                                           \
	X(BIO_clear_flags)                                                                         \
	X(TLS_method)                                                                              \
	X(SSL_CTX_new)                                                                             \
	X(SSL_CTX_free)                                                                            \
	X(SSL_CTX_ctrl)                                                                            \
	X(SSL_CTX_set_options)                                                                     \
	X(SSL_CTX_clear_options)                                                                   \
	X(SSL_CTX_set_ciphersuites)                                                                \
	X(SSL_CTX_set_num_tickets)                                                                 \
	X(SSL_CTX_set_psk_use_session_callback)                                                    \
	X(SSL_CTX_set_psk_find_session_callback)                                                   \
	X(SSL_new)                                                                                 \
	X(SSL_free)                                                                                \
	X(SSL_ctrl)                                                                                \
	X(SSL_set_bio)                                                                             \
	X(SSL_set_ex_data)                                                                         \
	X(SSL_get_ex_data)                                                                         \
	X(SSL_set_connect_state)                                                                   \
	X(SSL_set_accept_state)                                                                    \
	X(SSL_set_read_ahead)                                                                      \
	X(SSL_set_default_read_buffer_len)                                                         \
	X(SSL_do_handshake)                                                                        \
	X(SSL_session_reused)                                                                      \
	X(SSL_read_ex)                                                                             \
	X(SSL_peek_ex)                                                                             \
	X(SSL_write_ex)                                                                            \
	X(SSL_has_pending)                                                                         \
	X(SSL_key_update)                                                                          \
	X(SSL_shutdown)                                                                            \
	X(SSL_get_error)                                                                           \
	X(SSL_CIPHER_find)                                                                         \
	X(SSL_SESSION_new)                                                                         \
	X(SSL_SESSION_free)                                                                        \
	X(SSL_SESSION_set1_master_key)                                                             \
	X(SSL_SESSION_set_cipher)                                                                  \
	X(SSL_SESSION_set_protocol_version)

struct tls_library {
#define FIELD(name) __typeof__(name) *name;
	TLS_FUNCTIONS(FIELD)
#undef FIELD
};

#define TEXT_OF(x)   #x
#define TEXT(x)      TEXT_OF(x)
#define LIBRARY_NAME "libssl.so." TEXT(OPENSSL_SHLIB_VERSION)

/* For all connections of the process, once it is loaded. */
static struct tls_library openssl;

/* Stays loaded to the end of the process. UNSUPPORTED with a message that says what is missing. */
static tutti_status tls_load_library(struct tls_library *library)
{
	/* libssl brings libcrypto along, so that it finds the names of both. */
	static const struct dynamic_symbol functions[] = {
#define ROW(name) {#name, offsetof(struct tls_library, name), false},
		TLS_FUNCTIONS(ROW)
#undef ROW
	};
	void *handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
	const char *missing;

	if (!handle)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "TUTTI_TLS=1 needs OpenSSL's " LIBRARY_NAME
			    ", which cannot be loaded here (Debian's package is libssl3): %.300s",
			    dlerror());
	missing = dynamic_library_fill(handle, functions, sizeof functions / sizeof *functions,
				       library);
	if (!missing)
		return TUTTI_OK;
	fail(TUTTI_ERR_UNSUPPORTED,
	     "TUTTI_TLS=1 needs OpenSSL's " LIBRARY_NAME ", and the one here has no %s", missing);
	dlclose(handle);
	return TUTTI_ERR_UNSUPPORTED;
}

/* Common to all connections: TLS 1.3 and nothing older, a key that both ends have and
 * fresh Diffie-Hellman keys besides, no certificates, no tickets, the cipher that is faster on
 * these CPUs. */

/* OpenSSL sees the socket as a BIO that reads from it and writes into a buffer of ours, which goes
 * into the socket when OpenSSL is done. */

static int tls_socket_read(BIO *bio, char *to, int bytes)
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

static int tls_socket_write(BIO *bio, const char *from, int bytes)
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

/* Returns 0 when all of out has gone into the socket, else errno, which the kernel tells only
 * once. */
static int tls_socket_flush(struct tls *t)
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
static bool tls_has_aes(void)
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
static SSL_SESSION *tls_session_of(SSL *of)
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

static int tls_use_key(SSL *of, const EVP_MD *hash, const unsigned char **id, size_t *id_bytes,
		       SSL_SESSION **session)
{
	(void)hash; /* the second time that it is asked, the one that was chosen: SHA-256 */
	*id = (const unsigned char *)identity;
	*id_bytes = sizeof identity - 1;
	*session = tls_session_of(of);
	return *session != NULL;
}

static int tls_find_key(SSL *of, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
	*session = NULL;
	if (id_bytes != sizeof identity - 1 || memcmp(id, identity, id_bytes) != 0)
		return 1; /* another identity: there is none */
	*session = tls_session_of(of);
	return *session != NULL;
}

static long tls_context_control(BIO *bio, int command, long number, void *pointer)
{
	(void)bio, (void)number, (void)pointer;
	return command == BIO_CTRL_FLUSH; /* tls.c does, when OpenSSL is done */
}

static bool tls_make_method(void)
{
	method = openssl.BIO_meth_new(BIO_TYPE_SOURCE_SINK | 127, "tutti socket");
	return method && openssl.BIO_meth_set_read(method, tls_socket_read) &&
	       openssl.BIO_meth_set_write(method, tls_socket_write) &&
	       openssl.BIO_meth_set_ctrl(method, tls_context_control);
}

/* Whatever the system's openssl.cnf says. */
static bool tls_make_context(SSL_CTX **made)
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
	openssl.SSL_CTX_set_psk_use_session_callback(c, tls_use_key);
	openssl.SSL_CTX_set_psk_find_session_callback(c, tls_find_key);
	return openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
	       openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
	       openssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_GROUPS_LIST, 0, (char[]){"X25519:P-256"}) ==
		       1 &&
	       openssl.SSL_CTX_set_ciphersuites(c, tls_has_aes() ? WITH_AES : WITHOUT_AES) == 1 &&
	       openssl.SSL_CTX_set_num_tickets(c, 0) == 1;
}

/* In OpenSSL's words, what went wrong last; it has none for some of its errors. */
static const char *tls_reason(void)
{
	const char *reason = openssl.ERR_reason_error_string(openssl.ERR_peek_last_error());

	return reason ? reason : "no reason given";
}

static tutti_status tls_context_load(void)
{
	SSL_CTX *made = NULL;

	TRY(tls_load_library(&openssl));
	/* Threads of ours may still be talking while the process exits: nothing is freed then. */
	if (openssl.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) == 1 && tls_make_method() &&
	    tls_make_context(&made)) {
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
static SSL *tls_context_new_ssl(struct tls *t, bool dials)
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
static size_t tls_count_sent(struct tls *t)
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
static int tls_error_of(struct tls *t)
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
	error = rc == 1 ? 0 : tls_error_of(t);
	if (tls_socket_flush(t) != 0 && (rc == 1 || error == EAGAIN))
		return -1;
	tls_count_sent(t);
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

static bool tls_skip_empty(struct tls_place *p)
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

	while (done < bytes && tls_skip_empty(p)) {
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
static const uint8_t *tls_next_record(struct tls *t, struct tls_place *p, size_t *bytes)
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
	while (t->count < t->records && tls_skip_empty(p)) {
		size_t bytes, done = 0;
		const uint8_t *from = tls_next_record(t, p, &bytes);

		if (t->until_rekey-- == 0) {
			t->until_rekey = TLS_REKEY;
			openssl.SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
		}
		tls_prepare(t);
		if (openssl.SSL_write_ex(t->ssl, from, bytes, &done) != 1 || done != bytes) {
			tls_error_of(t);
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
		gone += tls_count_sent(t);
		if (rc != 0 || !tls_skip_empty(&p))
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
	tls_count_sent(t);
	if (t->is_up && !t->is_ending && !(t->has_ended && t->error))
		openssl.SSL_shutdown(t->ssl);
	t->is_ending = true;
	return tls_socket_flush(t);
}

/* False: errno says why, 0 is the end. */
static bool tls_open_some(struct tls *t, int (*how)(SSL *, void *, size_t, size_t *), void *to,
			  size_t bytes, size_t *got)
{
	if (t->has_ended) {
		errno = t->error;
		return false;
	}
	tls_prepare(t);
	if (how(t->ssl, to, bytes, got) == 1)
		return true;
	errno = tls_error_of(t);
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
			if (!tls_open_some(t, openssl.SSL_read_ex, (char *)iov[i].iov_base + at,
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

	return t->is_up && tls_open_some(t, openssl.SSL_peek_ex, &byte, 1, &got);
}

bool tls_may_have_more(const struct tls *t)
{
	return t->is_up && (t->has_ended ||
			    (!t->is_empty && (!t->is_short || openssl.SSL_has_pending(t->ssl))));
}
