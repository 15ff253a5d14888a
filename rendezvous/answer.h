/* What a rank hears from the server of its meeting. */
#ifndef RENDEZVOUS_ANSWER_H
#define RENDEZVOUS_ANSWER_H

#include "rendezvous/frame.h"
#include "rendezvous/wire.h"

/* How much longer than its deadline a rank waits for the server's message about it. */
uint64_t answer_grace(uint64_t deadline_ns);
/* The server is gone or silent: PEER and TIMEOUT get their message, others have one. */
tutti_status answer_lost(const struct wire *wire, tutti_status status);
/* The frame of this kind and length; or what the meeting has failed with, for everybody. */
tutti_status answer_await(struct wire *wire, enum frame_kind kind, void *body, size_t bytes,
                          uint64_t deadline_ns);

#endif
