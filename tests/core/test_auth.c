/* Breaks when a process without the job's secret could pass as a rank, in either direction. */
#include "core/auth.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

struct talk {
	struct auth dialer, listener;
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];
};

static const uint8_t context[AUTH_CONTEXT_BYTES] = "rank 3 for a meeting";

/* Which step refuses: 1 take_hello, 2 check_answer, 3 check_proof, 0 none. flip is a bit of the
 * three messages in a row, -1: none. */
static int talk_with(const uint8_t *dialer_key, const uint8_t *listener_key, int flip)
{
	struct talk t;
	int answer_at = AUTH_HELLO_BYTES * 8, proof_at = answer_at + AUTH_ANSWER_BYTES * 8;

	auth_hello(&t.dialer, dialer_key, context, t.hello);
	if (flip >= 0 && flip < answer_at)
		t.hello[flip / 8] ^= (uint8_t)(1 << flip % 8);
	if (auth_take_hello(&t.listener, listener_key, t.hello, t.answer) != TUTTI_OK)
		return 1;
	if (flip >= answer_at && flip < proof_at)
		t.answer[(flip - answer_at) / 8] ^= (uint8_t)(1 << flip % 8);
	if (auth_check_answer(&t.dialer, t.answer, t.proof) != TUTTI_OK)
		return 2;
	if (flip >= proof_at)
		t.proof[(flip - proof_at) / 8] ^= (uint8_t)(1 << flip % 8);
	if (auth_check_proof(&t.listener, t.proof) != TUTTI_OK)
		return 3;
	assert_memory_equal(t.listener.context, context, sizeof context);
	return 0;
}

static void the_same_secret_is_accepted(void **state)
{
	uint8_t a[TUTTI_KEY_BYTES], b[TUTTI_KEY_BYTES];

	auth_key_from_secret(a, "a secret");
	auth_key_from_secret(b, "a secret");
	assert_int_equal(talk_with(a, b, -1), 0);
}

static void another_secret_is_refused(void **state)
{
	uint8_t ours[TUTTI_KEY_BYTES], theirs[TUTTI_KEY_BYTES];

	auth_key_from_secret(ours, "a secret");
	auth_key_from_secret(theirs, "a secret ");
	assert_int_equal(talk_with(theirs, ours, -1), 2);
}

/* What a dialer sends that makes its proof without looking at the answer: written down byte by
 * byte, so that the test also fails when the wire format changes. */
static tutti_status proof_made_with(const uint8_t *key, const uint8_t *listener_key)
{
	struct talk t;
	uint8_t said[8 + 32 + 32 + AUTH_CONTEXT_BYTES] = "proof";

	auth_hello(&t.dialer, key, context, t.hello);
	assert_int_equal(auth_take_hello(&t.listener, listener_key, t.hello, t.answer), TUTTI_OK);
	memcpy(said + 8, t.hello + 8, 32);
	memcpy(said + 40, t.answer, 32);
	memcpy(said + 72, context, sizeof context);
	crypto_auth(t.proof, said, sizeof said, key);
	return auth_check_proof(&t.listener, t.proof);
}

static void a_dialer_that_skips_the_answer_is_refused(void **state)
{
	uint8_t ours[TUTTI_KEY_BYTES], theirs[TUTTI_KEY_BYTES];

	auth_key_from_secret(ours, "a secret");
	auth_key_from_secret(theirs, "another");
	assert_int_equal(proof_made_with(ours, ours), TUTTI_OK);
	assert_int_equal(proof_made_with(theirs, ours), TUTTI_ERR_AUTH);
}

static void every_flipped_bit_is_refused(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	int bits = 8 * (AUTH_HELLO_BYTES + AUTH_ANSWER_BYTES + AUTH_PROOF_BYTES);

	auth_key_from_secret(key, "a secret");
	for (int flip = 0; flip < bits; flip++)
		assert_int_not_equal(talk_with(key, key, flip), 0);
	assert_int_equal(talk_with(key, key, 0), 1); /* the magic */
}

/* An attacker who opens a second connection to get his proof made for him. */
static void an_answer_is_no_proof(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	struct talk t;

	auth_key_from_secret(key, "a secret");
	auth_hello(&t.dialer, key, context, t.hello);
	assert_int_equal(auth_take_hello(&t.listener, key, t.hello, t.answer), TUTTI_OK);
	assert_int_equal(auth_check_proof(&t.listener, t.answer + 32), TUTTI_ERR_AUTH);
}

static void a_proof_is_good_once(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES], answer[AUTH_ANSWER_BYTES];
	struct talk t;

	auth_key_from_secret(key, "a secret");
	auth_hello(&t.dialer, key, context, t.hello);
	assert_int_equal(auth_take_hello(&t.listener, key, t.hello, t.answer), TUTTI_OK);
	assert_int_equal(auth_check_answer(&t.dialer, t.answer, t.proof), TUTTI_OK);
	assert_int_equal(auth_check_proof(&t.listener, t.proof), TUTTI_OK);
	/* The same hello and proof, played back to the same listener later. */
	assert_int_equal(auth_take_hello(&t.listener, key, t.hello, answer), TUTTI_OK);
	assert_int_equal(auth_check_proof(&t.listener, t.proof), TUTTI_ERR_AUTH);
}

static void another_context_is_refused(void **state)
{
	uint8_t key[TUTTI_KEY_BYTES];
	struct talk t;

	auth_key_from_secret(key, "a secret");
	auth_hello(&t.dialer, key, context, t.hello);
	t.hello[AUTH_HELLO_BYTES - AUTH_CONTEXT_BYTES + 5] = '2'; /* "rank 2 ..." */
	assert_int_equal(auth_take_hello(&t.listener, key, t.hello, t.answer), TUTTI_OK);
	assert_int_equal(auth_check_answer(&t.dialer, t.answer, t.proof), TUTTI_ERR_AUTH);
}

static void derived_keys_differ(void **state)
{
	static const struct {
		const char *label, *what;
	} of[] = {{"id", "ab"}, {"key", "ab"}, {"key", "ac"}, {"key", "a"}, {"keya", "b"}};
	uint8_t key[2][TUTTI_KEY_BYTES], made[12][TUTTI_KEY_BYTES];
	size_t n = 0;

	auth_key_from_secret(key[0], "a secret");
	auth_key_from_secret(key[1], "another");
	memcpy(made[n++], key[0], sizeof key[0]);
	memcpy(made[n++], key[1], sizeof key[1]);
	for (int i = 0; i < 10; i++)
		auth_derive(made[n++], key[i / 5], of[i % 5].label, of[i % 5].what,
			    strlen(of[i % 5].what));
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < i; j++)
			assert_memory_not_equal(made[i], made[j], TUTTI_KEY_BYTES);
	auth_derive(made[0], key[1], "key", "ac", 2);
	assert_memory_equal(made[0], made[9], TUTTI_KEY_BYTES);
}

static void random_bytes_differ(void **state)
{
	uint8_t a[32], b[32];

	auth_random(a, sizeof a);
	auth_random(b, sizeof b);
	assert_memory_not_equal(a, b, sizeof a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_secret_is_accepted),
		cmocka_unit_test(another_secret_is_refused),
		cmocka_unit_test(a_dialer_that_skips_the_answer_is_refused),
		cmocka_unit_test(every_flipped_bit_is_refused),
		cmocka_unit_test(an_answer_is_no_proof),
		cmocka_unit_test(a_proof_is_good_once),
		cmocka_unit_test(another_context_is_refused),
		cmocka_unit_test(derived_keys_differ),
		cmocka_unit_test(random_bytes_differ),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
