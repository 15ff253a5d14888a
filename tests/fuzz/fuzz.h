/* What the harnesses share. A harness is a program fuzz_<name>.c with fuzz_one: it gives one input,
 * foreign bytes, to the product's own functions, and must end soon, leave nothing behind, and
 * always do the same. libFuzzer makes inputs (build/fuzz); everywhere else fuzz_main.c runs the
 * kept ones, seeds/<name>/. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What must hold whatever the bytes are. */
#define MUST(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

void fuzz_one(const uint8_t *bytes, size_t n);

/* The input, read from its front; past its end everything is 0. */
struct input {
	const uint8_t *at;
	size_t left;
};
uint8_t input_byte(struct input *input);
uint32_t input_number(struct input *input); /* of 4 bytes */
void input_bytes(struct input *input, void *to, size_t n);
/* All that is left, as a text of its own size: reading past its end is seen. Freed by the caller.
 */
char *input_text(struct input *input);
/* A file of all that is left: a descriptor, and its name for those who open it. Closed by the
 * caller. */
#define FUZZ_PATH_BYTES 32
int input_file(struct input *input, char path[FUZZ_PATH_BYTES]);

/* Random numbers of libsodium are the same for every input of this process. */
void fuzz_fixed_random(void);
/* A pair of connected, non-blocking Unix sockets. */
void fuzz_pair(int pair[2]);
/* A non-blocking connection to the abstract Unix socket; -1 if no process listens there, or it has
 * no room. */
int fuzz_connect(const char *name);
/* As much as the socket takes. */
void fuzz_send(int fd, const void *bytes, size_t n);

#endif
