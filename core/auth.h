/* Proof of the job's secret, both ways, in three fixed-size messages. No I/O here: the caller moves
 * the bytes, blocking or not. Keyed with libsodium's crypto_auth (HMAC-SHA-512-256).
 *
 *     dialer   -> listener   hello   magic, nonce, 32 bytes of context (which rank calls, what for)
 *     listener -> dialer     answer  nonce, MAC(key, "answer", both nonces, context)
 *     dialer   -> listener   proof   MAC(key, "proof", both nonces, context)
 *
 * Nothing that a peer sends is believed before its MAC was checked, and an answer cannot be
 * reflected as a proof.
 *
 * A listener that is not the one that the hello asks for answers with zeros (auth_not_here). That
 * is no more proof than a refused connection, and means the same. */
#ifndef CORE_AUTH_H
#define CORE_AUTH_H

#include <tutti/transport.h>

#define AUTH_CONTEXT_BYTES 32
#define AUTH_HELLO_BYTES 72
#define AUTH_ANSWER_BYTES 64
#define AUTH_PROOF_BYTES 32

struct auth {
	uint8_t key[TUTTI_KEY_BYTES], context[AUTH_CONTEXT_BYTES];
	uint8_t dialer_nonce[32], listener_nonce[32];
};

/* Hashes a secret of any length into the key. */
void auth_key_from_secret(uint8_t key[TUTTI_KEY_BYTES], const char *secret);
void auth_random(void *bytes, size_t n);
/* Another key, out of key and what it is for: without key it cannot be told from random, nor
 * learn key from it. label: at most 16 bytes. */
void auth_derive(uint8_t out[TUTTI_KEY_BYTES], const uint8_t key[TUTTI_KEY_BYTES],
		 const char *label, const void *what, size_t bytes);

/* The dialer's side. check_answer and the listener's check_proof return AUTH on a wrong MAC, and
 * leave the message to the caller, who knows the address. */
void auth_hello(struct auth *a, const uint8_t key[TUTTI_KEY_BYTES],
                const uint8_t context[AUTH_CONTEXT_BYTES], uint8_t hello[AUTH_HELLO_BYTES]);
tutti_status auth_check_answer(struct auth *a, const uint8_t answer[AUTH_ANSWER_BYTES],
                               uint8_t proof[AUTH_PROOF_BYTES]);
/* The listener's side. take_hello: AUTH when the magic is not ours. a->context is then the
 * dialer's claim, to be believed after check_proof. */
tutti_status auth_take_hello(struct auth *a, const uint8_t key[TUTTI_KEY_BYTES],
                             const uint8_t hello[AUTH_HELLO_BYTES],
                             uint8_t answer[AUTH_ANSWER_BYTES]);
tutti_status auth_check_proof(const struct auth *a, const uint8_t proof[AUTH_PROOF_BYTES]);

extern const uint8_t auth_not_here[AUTH_ANSWER_BYTES];

/* After the greeting, on either side: a key that this connection alone has, for TLS. */
void auth_tls_key(const struct auth *a, uint8_t key[TUTTI_KEY_BYTES]);

#endif
