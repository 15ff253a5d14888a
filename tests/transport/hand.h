/* A peer made by hand: a plain socket that speaks tcp's wire format to an endpoint of the world,
 * rightly or wrongly. For tcp's own tests. */
#ifndef TESTS_TRANSPORT_HAND_H
#define TESTS_TRANSPORT_HAND_H

#include "tests/transport/world.h"

#include "transport/tcp/accept.h"
#include "transport/tcp/dial.h"

/* tcp is the subject, with a seed of this run. */
void hand_setup(void);
/* A socket, connected to the listener of this rank. */
int hand_dial(const struct world *w, int to);
/* Reads n bytes while the world goes on. False when the other end hung up first. */
bool hand_read(struct world *w, int fd, void *buf, size_t n);
void hand_write(int fd, const void *buf, size_t n);
/* Says hello as rank from, and keeps its proof. False when it is not answered, or wrongly. */
bool hand_greet(struct world *w, int fd, int from, int to, int channel,
		uint8_t proof[AUTH_PROOF_BYTES]);
/* Says hello as rank from and proves the key. False when it is not answered, or wrongly. */
bool hand_prove(struct world *w, int fd, int from, int to, int channel);
/* The same, and TLS; the endpoint may not have heard its last word. The test frees it. */
struct tls *hand_secure(struct world *w, int fd, int from, int to, int channel);
/* Both where connections are made again, for socket number epoch of it; positions come next. */
bool hand_prove_again(struct world *w, int fd, int from, int to, int channel, uint32_t epoch);
struct tls *hand_secure_again(struct world *w, int fd, int from, int to, int channel,
			      uint32_t epoch);
/* As hand_prove where connections are made again, for socket number epoch of it: has bytes of the
 * endpoint's stream have been read on those before; peer_has of the hand's have. */
bool hand_resume(struct world *w, int fd, int from, int to, int channel, uint32_t epoch,
		 uint64_t has, uint64_t *peer_has);
void hand_header(uint8_t header[TCP_HEADER_BYTES], uint64_t bytes, uint32_t tag, uint32_t number);
/* A message with checksums in front, as it is sent when the endpoint has them. */
void hand_summed_header(uint8_t header[TCP_SUMMED_BYTES], const void *payload, uint64_t bytes,
			uint32_t tag, uint32_t number);
/* The endpoint has hung up: waits for it. */
void hand_expect_end(struct world *w, int fd);
/* Ranks 0 and 1 connect, and a message of 1's arrives. */
void hand_expect_talk(struct world *w);
/* They do not, until their time is over. */
void hand_expect_apart(struct world *w);

#endif
