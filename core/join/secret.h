/* Where the key of a meeting comes from: the job's secret; or, on one machine, rank 0's word to
 * processes of the same user; or, when TUTTI_INSECURE=1 says so, nowhere. */
#ifndef CORE_JOIN_SECRET_H
#define CORE_JOIN_SECRET_H

#include "core/join/rendezvous.h"
#include "core/join/server.h"

#include <stdbool.h>

/* Of two secrets (one may be "") and the port whose neighbours are probed, or 0, so that a probe
 * takes no other job with the same secret for its own. */
void secret_key(uint8_t key[TUTTI_KEY_BYTES], const char *secret, const char *second, int port);
/* Does the job's key come from a secret (or from TUTTI_INSECURE)? Then it is written. */
bool secret_is_given(uint8_t key[TUTTI_KEY_BYTES], const struct job *job, const struct env *env);
/* The key that the same secret gives, where it is given, to a meeting of the other kind: of all
 * ranks where this one joins a job that grows, of a grow where it does not. Only to name a
 * meeting that is met by mistake. */
void secret_other_kind(uint8_t key[TUTTI_KEY_BYTES], const struct job *job);
/* Ranks without a secret must be on the machine of host. IN_PROGRESS: host has no address now. */
tutti_status secret_check_here(const struct job *job);
/* The Unix socket of the meeting at port, for the server; and the other ranks' question to it:
 * IN_PROGRESS when no process listens there. */
tutti_status secret_listen(const struct job *job, int *unix_fd);
tutti_status secret_ask(const struct job *job, uint64_t deadline_ns, uint8_t key[TUTTI_KEY_BYTES],
			int *real_port);
/* Reads the answer to secret_ask. MISMATCH: it is no offer. */
tutti_status secret_take_offer(const uint8_t offer[OFFER_BYTES], uint8_t key[TUTTI_KEY_BYTES],
			       int *real_port);

#endif
