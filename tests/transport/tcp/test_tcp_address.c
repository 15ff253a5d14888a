/* Would break: finding a peer: which addresses an endpoint tells, and in which order they are
 * tried. */
#include "tests/transport/hand.h"

#include <arpa/inet.h>
#include <string.h>

/* The bytes of an endpoint's address that say which machine it is on. */
#define MACHINE_AT 4
/* And where it has the flags, and which says that the preferred address is not this machine's. */
#define FLAGS_AT     14
#define FLAG_FOREIGN 2

static tutti_status open_with(struct tutti_endpoint **endpoint, int rank, const char *preferred)
{
	struct tutti_endpoint_config config = config_of(rank, 2, 99, 1000);

	config.address = preferred;
	return subject->transport->open(endpoint, &config);
}

static int candidates_of(struct tutti_endpoint *from, const struct tutti_endpoint *to,
			 char texts[TCP_CANDIDATES][TCP_TEXT_BYTES])
{
	struct tcp_address list[TCP_CANDIDATES];
	int n = tcp_address_candidates((struct tcp_endpoint *)from, to->address, to->address_bytes,
				       list);

	for (int i = 0; i < n; i++)
		tcp_address_print((struct sockaddr *)&list[i].sockaddr, texts[i]);
	return n;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static void test_loopback_first(void **state)
{
	struct world w;
	char texts[TCP_CANDIDATES][TCP_TEXT_BYTES];

	world_open(&w, 2);
	assert_true(candidates_of(w.endpoints[1], w.endpoints[0], texts) >= 1);
	assert_true(begins(texts[0], "127.0.0.1:"));

	/* On another machine there is no loopback to try, and both ends agree on how well it goes.
	 */
	w.endpoints[0]->address[MACHINE_AT] ^= 1;
	for (int i = candidates_of(w.endpoints[1], w.endpoints[0], texts) - 1; i >= 0; i--)
		assert_false(begins(texts[i], "127."));
	assert_int_equal(subject->transport->reach(w.endpoints[0], 1, w.endpoints[1]->address,
						   w.endpoints[1]->address_bytes),
			 subject->transport->reach(w.endpoints[1], 0, w.endpoints[0]->address,
						   w.endpoints[0]->address_bytes));
	w.endpoints[0]->address[MACHINE_AT] ^= 1;
	world_close(&w);
}

/* One machine that stands for several nodes is still one machine to tcp. */
static void test_host_id_does_not_matter(void **state)
{
	struct tutti_endpoint_config config = config_of(0, 2, 7, 1000);
	struct tutti_endpoint *a, *b;

	assert_int_equal(subject->transport->open(&a, &config), TUTTI_OK);
	config = config_of(1, 2, 7, 1000);
	config.host_id = "quite another node";
	assert_int_equal(subject->transport->open(&b, &config), TUTTI_OK);
	assert_memory_equal(a->address + MACHINE_AT, b->address + MACHINE_AT, 8);
	assert_true(subject->transport->reach(a, 1, b->address, b->address_bytes) > 0);
	subject->transport->destroy(a);
	subject->transport->destroy(b);
}

static void test_preferred(void **state)
{
	char texts[TCP_CANDIDATES][TCP_TEXT_BYTES];
	struct tutti_endpoint *a, *b;

	assert_int_equal(open_with(&a, 0, "127.0.0.2"), TUTTI_OK);
	assert_int_equal(open_with(&b, 1, "lo"), TUTTI_OK);
	assert_true(candidates_of(b, a, texts) >= 2);
	assert_true(begins(texts[0], "127.0.0.2:"));
	assert_true(begins(texts[1], "127.0.0.1:"));
	assert_true(candidates_of(a, b, texts) >= 1);
	assert_true(begins(texts[0], "127.0.0.1:"));
	subject->transport->destroy(b);
	subject->transport->destroy(a);

	for (int i = 0; i < 2; i++) {
		assert_int_equal(open_with(&a, 0, i ? "[::1]" : "::1"), TUTTI_OK);
		assert_int_equal(candidates_of(a, a, texts) >= 1, 1);
		assert_true(begins(texts[0], "[::1]:"));
		subject->transport->destroy(a);
	}

	/* What no interface here has may lead here from elsewhere, but not from this machine. */
	assert_int_equal(open_with(&a, 0, "240.0.0.1"), TUTTI_OK);
	assert_int_equal(open_with(&b, 1, NULL), TUTTI_OK);
	assert_true(candidates_of(b, a, texts) >= 2);
	assert_true(begins(texts[0], "127.0.0.1:"));
	assert_true(begins(texts[1], "240.0.0.1:"));
	a->address[MACHINE_AT] ^= 1;
	assert_true(candidates_of(b, a, texts) >= 1);
	assert_true(begins(texts[0], "240.0.0.1:"));
	subject->transport->destroy(b);
	subject->transport->destroy(a);

	assert_int_equal(open_with(&a, 0, "no-such-interface"), TUTTI_ERR_UNSUPPORTED);
	assert_non_null(strstr(last_error(), "no-such-interface"));
	assert_int_equal(open_with(&a, 0, "127.0.0.1:29500"), TUTTI_ERR_UNSUPPORTED);
	assert_non_null(strstr(last_error(), "is neither an address nor an interface"));
	static const char *const scoped[] = {"fe80::1%lo", "[fe80::1%lo]", "fe80::1"};
	for (int i = 0; i < 3; i++) {
		assert_int_equal(open_with(&a, 0, scoped[i]), TUTTI_ERR_UNSUPPORTED);
		assert_non_null(strstr(last_error(), "is a link-local address"));
	}
}

/* The first address leads nowhere, the next one does. */
static void test_next_candidate(void **state)
{
	struct world w;
	struct tutti_endpoint *other;
	struct post send, recv;
	uint64_t out = 3, in = 0;

	world_open(&w, 2);
	/* Nothing listens on this endpoint's port at that address: it says so itself. */
	subject->transport->destroy(w.endpoints[0]);
	w.configs[0].address = "240.0.0.1";
	assert_int_equal(subject->transport->open(&other, &w.configs[0]), TUTTI_OK);
	other->address[FLAGS_AT] &= (uint8_t)~FLAG_FOREIGN; /* as if it were this machine's */
	w.endpoints[0] = other;
	post_send(&send, world_conn(&w, 1, 0, 0), &out, sizeof out, 1);
	post_recv(&recv, world_conn(&w, 0, 1, 0), &in, sizeof in, 1);
	world_expect_ok(&w, &recv, 1);
	world_expect_ok(&w, &send, 1);
	assert_int_equal(in, 3);
	world_close(&w);
}

/* An address that some other transport or version made, or that was damaged on its way. */
static void test_nonsense(void **state)
{
	uint8_t address[TUTTI_ADDRESS_BYTES];
	struct world w;
	struct tutti_conn *conn = NULL;
	uint64_t random = test_seed;

	world_open(&w, 2);
	for (size_t bytes = 0; bytes <= sizeof address; bytes++) {
		bytes_fill(address, sizeof address, random_next(&random));
		assert_int_equal(subject->transport->reach(w.endpoints[1], 0, address, bytes), 0);
	}
	memcpy(address, w.endpoints[0]->address, w.endpoints[0]->address_bytes);
	for (size_t bytes = 0; bytes < w.endpoints[0]->address_bytes; bytes++)
		assert_int_equal(subject->transport->reach(w.endpoints[1], 0, address, bytes), 0);
	assert_int_equal(subject->transport->connect(w.endpoints[1], 0, 0, address, 5, &conn),
			 TUTTI_ERR_UNSUPPORTED);
	assert_null(conn);
	assert_non_null(strstr(last_error(), "rank 0"));
	assert_int_equal(subject->transport->reach(w.endpoints[1], 1, w.endpoints[1]->address,
						   w.endpoints[1]->address_bytes),
			 0);
	world_close(&w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loopback_first),
		cmocka_unit_test(test_host_id_does_not_matter),
		cmocka_unit_test(test_preferred),
		cmocka_unit_test(test_next_candidate),
		cmocka_unit_test(test_nonsense),
	};

	hand_setup();
	return cmocka_run_group_tests_name("tcp_address", tests, NULL, NULL);
}
