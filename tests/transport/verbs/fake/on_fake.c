/* verbs on the fake: the suite, and that nothing was done that hardware would take amiss. */
#include "tests/transport/verbs/fake/on_fake.h"
#include "tests/whole.h"

#include "core/clock.h"
#include "core/known_memory.h"
#include "transport/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t on_fake_seed(void)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : clock_now_ns();

	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

int on_fake_conformance(const struct fake_config *config)
{
	const struct conformance verbs = {
		.transport = &transport_verbs, .is_one_process = true, .costs = whole_or(0, 6, 6)};
	struct fake_counts counts;
	int failed;

	fake_start(config);
	failed = conformance_main(&verbs);
	counts = fake_count();
	printf("%ld messages, %ld of them inline; %ld writes, %ld of them with immediate data; %ld "
	       "bytes\n",
	       counts.sends, counts.inlines, counts.writes, counts.immediates, counts.bytes);
	if (counts.not_ready > 0) {
		fprintf(stderr, "%ld messages found no receive posted\n", counts.not_ready);
		failed++;
	}
	return failed + !fake_is_clean();
}

uint8_t *on_fake_registered(size_t bytes)
{
	static uint8_t *all[2]; /* so that none of them is a leak */
	static int count;
	uint8_t *block = malloc(bytes);

	if (!block || count == 2 || known_memory_add(block, bytes) != TUTTI_OK) {
		fprintf(stderr, "no memory that is registered: %s\n", last_error());
		exit(1);
	}
	return all[count++] = block;
}

void on_fake_post(struct post *post, struct tutti_conn *conn, bool is_send, void *buf, size_t bytes,
		  void *map)
{
	memset(post, 0, sizeof *post);
	post->io = (struct tutti_io){.buf = buf, .bytes = bytes, .tag = 1, .map = map};
	if (is_send)
		transport_verbs.send(conn, &post->io);
	else
		transport_verbs.recv(conn, &post->io);
}

void expect_words(const char *text, const char *const *words)
{
	for (; *words; words++)
		if (!strstr(text, *words))
			fail_msg("'%s' is not in: %s", *words, text);
}
