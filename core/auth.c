/* The three messages' bytes and their MACs, by libsodium. Which rank calls which, and what to say
 * when a proof is wrong, is the caller's. */
#include "core/auth.h"

#include "core/status.h"

#include <assert.h>
#include <pthread.h>
#include <sodium.h>
#include <string.h>

#define NONCE_BYTES 32
#define MAC_BYTES   32
#define LABEL_BYTES 8

_Static_assert(crypto_auth_KEYBYTES == TUTTI_KEY_BYTES, "key");
_Static_assert(crypto_auth_BYTES == MAC_BYTES, "mac");

static const uint8_t magic[8] = {'T', 'U', 'T', 'T', 'I', 'A', '0', '1'};
static const char answer_label[LABEL_BYTES] = "answer";
static const char proof_label[LABEL_BYTES] = "proof";
static const char tls_label[LABEL_BYTES] = "tls";

struct transcript {
	uint8_t label[LABEL_BYTES];
	uint8_t dialer_nonce[NONCE_BYTES], listener_nonce[NONCE_BYTES];
	uint8_t context[AUTH_CONTEXT_BYTES];
};

_Static_assert(sizeof(struct transcript) == 8 + 32 + 32 + 32, "no padding in what is hashed");
_Static_assert(AUTH_HELLO_BYTES == sizeof magic + NONCE_BYTES + AUTH_CONTEXT_BYTES, "hello");
_Static_assert(AUTH_ANSWER_BYTES == NONCE_BYTES + MAC_BYTES, "answer");
_Static_assert(AUTH_PROOF_BYTES == MAC_BYTES, "proof");

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void auth_start_sodium(void)
{
	/* Fails only where the kernel has no random numbers. */
	int rc = sodium_init();
	assert(rc >= 0);
	(void)rc;
}

void auth_random(void *bytes, size_t n)
{
	pthread_once(&started, auth_start_sodium);
	randombytes_buf(bytes, n);
}

void auth_key_from_secret(uint8_t key[TUTTI_KEY_BYTES], const char *secret)
{
	static const uint8_t domain[] = "tutti job secret 1";

	pthread_once(&started, auth_start_sodium);
	crypto_generichash(key, TUTTI_KEY_BYTES, (const uint8_t *)secret, strlen(secret), domain,
			   sizeof domain - 1);
}

void auth_derive(uint8_t out[TUTTI_KEY_BYTES], const uint8_t key[TUTTI_KEY_BYTES],
		 const char *label, const void *what, size_t bytes)
{
	crypto_auth_hmacsha512256_state state; /* what crypto_auth is */
	uint8_t padded[16] = {0};
	size_t length = strlen(label);

	assert(length <= sizeof padded);
	memcpy(padded, label, length);
	pthread_once(&started, auth_start_sodium);
	crypto_auth_hmacsha512256_init(&state, key, TUTTI_KEY_BYTES);
	crypto_auth_hmacsha512256_update(&state, padded, sizeof padded);
	crypto_auth_hmacsha512256_update(&state, what, bytes);
	crypto_auth_hmacsha512256_final(&state, out);
}

static struct transcript auth_transcript_of(const struct auth *a, const char label[LABEL_BYTES])
{
	struct transcript t;

	memcpy(t.label, label, LABEL_BYTES);
	memcpy(t.dialer_nonce, a->dialer_nonce, NONCE_BYTES);
	memcpy(t.listener_nonce, a->listener_nonce, NONCE_BYTES);
	memcpy(t.context, a->context, AUTH_CONTEXT_BYTES);
	return t;
}

static void auth_mac(const struct auth *a, const char label[LABEL_BYTES], uint8_t out[MAC_BYTES])
{
	struct transcript t = auth_transcript_of(a, label);
	crypto_auth(out, (const uint8_t *)&t, sizeof t, a->key);
}

/* In constant time. */
static tutti_status auth_verify(const struct auth *a, const char label[LABEL_BYTES],
				const uint8_t claimed[MAC_BYTES])
{
	struct transcript t = auth_transcript_of(a, label);
	if (crypto_auth_verify(claimed, (const uint8_t *)&t, sizeof t, a->key) != 0)
		return TUTTI_ERR_AUTH;
	return TUTTI_OK;
}

void auth_hello(struct auth *a, const uint8_t key[TUTTI_KEY_BYTES],
		const uint8_t context[AUTH_CONTEXT_BYTES], uint8_t hello[AUTH_HELLO_BYTES])
{
	memset(a, 0, sizeof *a);
	memcpy(a->key, key, TUTTI_KEY_BYTES);
	memcpy(a->context, context, AUTH_CONTEXT_BYTES);
	auth_random(a->dialer_nonce, NONCE_BYTES);
	memcpy(hello, magic, sizeof magic);
	memcpy(hello + sizeof magic, a->dialer_nonce, NONCE_BYTES);
	memcpy(hello + sizeof magic + NONCE_BYTES, context, AUTH_CONTEXT_BYTES);
}

tutti_status auth_take_hello(struct auth *a, const uint8_t key[TUTTI_KEY_BYTES],
			     const uint8_t hello[AUTH_HELLO_BYTES],
			     uint8_t answer[AUTH_ANSWER_BYTES])
{
	if (memcmp(hello, magic, sizeof magic) != 0) /* not a secret */
		return TUTTI_ERR_AUTH;
	memset(a, 0, sizeof *a);
	memcpy(a->key, key, TUTTI_KEY_BYTES);
	memcpy(a->dialer_nonce, hello + sizeof magic, NONCE_BYTES);
	memcpy(a->context, hello + sizeof magic + NONCE_BYTES, AUTH_CONTEXT_BYTES);
	auth_random(a->listener_nonce, NONCE_BYTES);
	memcpy(answer, a->listener_nonce, NONCE_BYTES);
	auth_mac(a, answer_label, answer + NONCE_BYTES);
	return TUTTI_OK;
}

tutti_status auth_check_answer(struct auth *a, const uint8_t answer[AUTH_ANSWER_BYTES],
			       uint8_t proof[AUTH_PROOF_BYTES])
{
	memcpy(a->listener_nonce, answer, NONCE_BYTES);
	TRY(auth_verify(a, answer_label, answer + NONCE_BYTES));
	auth_mac(a, proof_label, proof);
	return TUTTI_OK;
}

const uint8_t auth_not_here[AUTH_ANSWER_BYTES];

tutti_status auth_check_proof(const struct auth *a, const uint8_t proof[AUTH_PROOF_BYTES])
{
	return auth_verify(a, proof_label, proof);
}

void auth_tls_key(const struct auth *a, uint8_t key[TUTTI_KEY_BYTES])
{
	_Static_assert(MAC_BYTES == TUTTI_KEY_BYTES, "a MAC is a key");
	auth_mac(a, tls_label, key);
}
