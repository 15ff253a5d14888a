/* All that the library's objects of this process give to TCP sockets, as a listener in the network
 * would see it. The tests that use it are linked so that every send and sendmsg of theirs comes
 * here (tests.cmake). */
#ifndef TESTS_TLS_CAPTURE_H
#define TESTS_TLS_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One direction of one connection. */
struct stream {
	uint16_t from, to; /* ports */
	uint8_t *bytes;
	size_t count, room;
};

/* Forgets all, and listens from now on. */
void capture_begin(void);
/* While nothing is being sent: those that were used. */
const struct stream *capture_streams(int *count);
bool capture_has(const void *bytes, size_t count);

#endif
