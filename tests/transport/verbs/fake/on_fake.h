/* verbs on the fake libibverbs of tests/verbs/fake. */
#ifndef TESTS_TRANSPORT_VERBS_FAKE_ON_FAKE_H
#define TESTS_TRANSPORT_VERBS_FAKE_ON_FAKE_H

#include "tests/transport/world.h"
#include "tests/verbs/fake/fake_verbs.h"

/* Of TEST_SEED, or of the clock; printed. */
uint64_t on_fake_seed(void);
/* The suite of tests/transport/conformance.h on these devices. Returns what main does. */
int on_fake_conformance(const struct fake_config *config);

/* A message of tag 1, from or into memory of this map (transport.h), or NULL. */
void on_fake_post(struct post *post, struct tutti_conn *conn, bool is_send, void *buf, size_t bytes,
		  void *map);

/* So many bytes that the devices know (core/known_memory.h), until the process ends. */
uint8_t *on_fake_registered(size_t bytes);

/* Each of the words is in the text. */
void expect_words(const char *text, const char *const *words);
#define EXPECT_WORDS(text, ...) expect_words(text, (const char *const[]){__VA_ARGS__, NULL})

#endif
